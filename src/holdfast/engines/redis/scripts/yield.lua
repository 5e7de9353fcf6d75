-- Included by the scripts that release a lock.
--
-- Waiters of other programs are not in the queue. yield(side): they have just been woken, and for a moment none of our
-- claims takes the lock: ours are faster, and would leave them nothing. acquire.lua reads this. It lasts for as long as a
-- woken program may take to ask. Returns whether it did: waiters of ours that listen on the same channel cannot be
-- distinguished from others, and while there are any, none yields.
-- others_turn(side): not with every release, or ours would get little beside a program that takes the lock several times
-- in a row: with each fourth, and with the first after 25 ms.
-- pcall: optional, an error must not hide that the lock was released.
local function others_turn(side)
    local turns = tonumber(redis.pcall('GET', side .. ':turns'))
    if not turns or turns >= 4 then return true end
    redis.pcall('SET', side .. ':turns', turns + 1, 'XX', 'KEEPTTL')
    return false
end

local function yield(side)
    local pcall = redis.pcall
    if pcall('EXISTS', side .. ':listeners') ~= 0 then return false end
    pcall('SET', side .. ':turns', '1', 'PX', '25')
    pcall('SET', side .. ':yield', '1', 'PX', '4')
    pcall('SET', side .. ':others', '1', 'PX', '1000')  -- hand_over.lua looks for them from now on
    return true
end

