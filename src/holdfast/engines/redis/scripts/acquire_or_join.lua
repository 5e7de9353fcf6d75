-- Take the lock for one claim, if it is free; else join the queue, in the same step. For a claim that is going to wait.
--
-- KEYS     1…5 as acquire.lua
-- ARGV     1…7 as acquire.lua  8 its entry in the queue: id, wire, lease and time, see turn.lua  9 ttl of the queue, ms
--          [10 waiter that it was before  11 that one's first entry]
-- Returns  text: granted, as acquire.lua. Number: it has joined the queue: -5; -6: it should watch the lock soon, for
--          another program holds it, or it is free, but not for this claim. -7: it was withdrawn: it has not joined.
--
-- A repeat finds its own field, and is granted. Another one that is busy joins again: it must leave its old entry.

local function acquire(KEYS, ARGV)
    -- include acquire
end

local call, queue = redis.call, KEYS[4]
-- Nearly always the lock is there, and has one owner: one command tells. (pcall: an ACL may lack it; a key of another type
-- is reported by the commands of acquire.lua.)
local first = redis.pcall('HRANDFIELD', KEYS[1], 2)
local answer = -5
if #first ~= 1 or first[1] == ARGV[1] then
    local keys = {KEYS[1], KEYS[2], KEYS[3], queue, KEYS[5], ARGV[10] and queue .. ':' .. ARGV[10]}
    local found = acquire(keys, {ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[10], ARGV[11]})
    if type(found) ~= 'number' then return found end
    if call('EXISTS', KEYS[5] .. ':gone:' .. ARGV[1]) == 1 then return -7 end
    answer = -6
elseif not string.find(first[1], ':%d%d%d%d%d%d%d%d%d%d%d%d') then
    answer = -6  -- numbers of our owners are long, Redisson's are those of threads
end
if ARGV[10] then
    call('DEL', queue .. ':' .. ARGV[10])
    call('LREM', queue, 0, ARGV[10])
    if ARGV[11] then call('LREM', queue, 0, ARGV[11]) end
end
local entry = ARGV[8] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5] .. ' ' .. ARGV[1] .. ' ' .. ARGV[4]
-- Its ttl is set when it is made, and now and then: nearly every waiter has gone before it is over. If that is refused
-- (an ACL without PEXPIRE), no queue is left without one.
if call('RPUSH', queue, entry) == 1 or string.byte(ARGV[1], -1) == 48 then
    local kept = redis.pcall('PEXPIRE', queue, ARGV[9])
    if kept ~= 1 then
        redis.pcall('RPOP', queue)
        return kept
    end
end
return answer
