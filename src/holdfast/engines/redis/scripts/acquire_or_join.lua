-- Take the lock for one claim, if it is free; else join the queue, in the same step. For a claim that is going to wait.
--
-- KEYS     1 lock  2 queue  3 what tombstones begin with
-- ARGV     1 owner  2 ttl ms  3 '1': do not overtake live waiters  4 its entry in the queue, see turn.lua  [5 waiter that
--          it was before  6 that one's first entry]
-- Returns  text: granted, as acquire.lua. Number: it has joined the queue: -5; -6: it should watch the lock soon, for
--          another program holds it, or it is free, but not for this claim. -7: it was withdrawn: it has not joined.
--
-- A repeat finds its own field, and is granted. Another one that is busy joins again: it must leave its old entry.

local try, lock, queue, owner = redis.pcall, KEYS[1], KEYS[2], ARGV[1]
-- Nearly always the lock is there, and has one owner: one command tells. (An ACL may lack it; a key of another type is
-- reported by the commands of acquire.lua.)
local first = try('HRANDFIELD', lock, '2')
local answer = -5
if #first ~= 1 or first[1] == owner then
    local function acquire(KEYS, ARGV)
        -- include acquire
    end
    local suffix = string.sub(queue, 15)
    local tokens, keep, description = string.match(ARGV[4], '^%x+ %a%x+ %d+ %S+ (%d+) (%d+) %S+ (.*)$')
    local keys = {lock, 'redisson_lock_token' .. suffix, 'holdfast_owner' .. suffix, queue, KEYS[3],
        ARGV[5] and queue .. ':' .. ARGV[5]}
    local found = acquire(keys, {owner, ARGV[2], tokens, description, keep, ARGV[3], '0', ARGV[5], ARGV[6]})
    if type(found) ~= 'number' then return found end
    if redis.call('EXISTS', KEYS[3] .. ':gone:' .. owner) == 1 then return -7 end
    answer = -6
elseif string.find(first[1], ':', -12, true) then
    answer = -6  -- numbers of our owners are long, Redisson's are those of threads
end
if ARGV[5] then
    redis.call('DEL', queue .. ':' .. ARGV[5])
    redis.call('LREM', queue, '0', ARGV[5])
    if ARGV[6] then redis.call('LREM', queue, '0', ARGV[6]) end
end
-- Its ttl is set when it is made, and now and then: nearly every waiter has gone before it is over. If that is refused
-- (an ACL without PEXPIRE), no queue is left without one.
if redis.call('RPUSH', queue, ARGV[4]) == 1 or string.byte(owner, -1) == 48 then
    local kept = try('PEXPIRE', queue, '4000')
    if kept ~= 1 then
        try('RPOP', queue)
        return kept
    end
end
return answer
