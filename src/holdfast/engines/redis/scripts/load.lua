-- Read a register under a guard, and shut out every earlier one.
--
-- KEYS     1 register  2 waiters present
-- ARGV     1 token  2 owner  3 ttl of the register, ms ('0': none)
-- Returns  value, queue, version, waiters that are present (none if none is queued); or, refused: token of the guard that
--          it has, version.
--
-- Idempotent. The guard is set in the same step: from here on no earlier holder can change what was read.
-- Tokens are decimal text, compared by length and then by their digits: exactly, however large.

-- include register
local found = redis.call('HMGET', KEYS[1], 'token', 'owner', 'version', 'value', 'queue')
local token, seen = ARGV[1], found[1]
if seen then
    local later = #seen > #token or (#seen == #token and seen > token)
    if later or (seen == token and found[2] ~= ARGV[2]) then return {seen, found[3] or '0'} end
end
-- Inside one client, no caller follows a holder that still waits for the answer to its last request.
if seen and string.sub(found[2], 1, 36) ~= string.sub(ARGV[2], 1, 36) then
    redis.pcall('SET', left(KEYS[1], found[2]), found[3] or '0', 'PX', LEFT_MS)
end
redis.call('HSET', KEYS[1], 'token', token, 'owner', ARGV[2])
local problem = keep(KEYS[1], ARGV[3], not seen and not found[3])
if problem then return problem end
local queue = found[5] or ''
return {found[4] or '', queue, found[3] or '0', queue == '' and {} or present_now(KEYS[2])}
