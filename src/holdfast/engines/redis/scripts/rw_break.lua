-- Take a read-write lock from its holders.
--
-- KEYS     1 lock  2 fencing counter  3 facts about the holders  4 key that holders watch
-- ARGV     1 channel  2 how to publish  3 ttl of the counter, ms (0: none)  4 token ('': any)
--          5 what time-out keys of readers begin with
-- Returns  1 if it was taken from a holder, else 0.
--
-- Idempotent with a token: only holders that have it are broken. Without one a repeat breaks whatever it finds. A hash
-- that is not a lock is refused before anything is written. The counter is raised as in break.lua. Readers do not watch
-- the lock, which changes with each of them, but the last key.

-- include raise_counter wake_all owners
local call = redis.call
local fields, problem = owners(KEYS[1])
if not fields then return problem end
local broken, gone, kept = {}, {}, 0
for i = 1, #fields, 2 do
    local field = fields[i]
    if field ~= 'mode' then
        local owner = string.gsub(field, ':write$', '')
        if ARGV[4] == '' or string.match(call('HGET', KEYS[3], owner) or '', '^(%d+) ') == ARGV[4] then
            broken[#broken + 1] = field
            for hold = 1, math.min(tonumber(fields[i + 1]) or 0, 100) do
                gone[#gone + 1] = ARGV[5] .. ':' .. field .. ':rwlock_timeout:' .. hold
            end
        else
            kept = kept + 1
        end
    end
end
if #broken == 0 then return 0 end
local token
token, problem = raise_counter(KEYS[2], 1, ARGV[3], '0')
if not token then return problem end
if kept == 0 then
    call('DEL', KEYS[1], KEYS[3])
else
    for _, field in ipairs(broken) do
        call('HDEL', KEYS[1], field)
        call('HDEL', KEYS[3], (string.gsub(field, ':write$', '')))
    end
    call('HSET', KEYS[1], 'mode', 'read')  -- readers are left: a writer excludes all but its own
end
for _, key in ipairs(gone) do call('DEL', key) end
call('SET', KEYS[4], token, 'PX', '5000')
wake_all(ARGV[1], ARGV[2])
return 1
