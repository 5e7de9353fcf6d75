-- Read a register under a guard, and shut out every earlier one.
--
-- KEYS     1 register  2 who is present
-- ARGV     1 token  2 owner  3 ttl of the register, ms ('0': none)
-- Returns  value, queue, version, waiters that are present; or, refused: token of the guard that it has, version.
--
-- Idempotent. The guard is set before anything is read: from here on no earlier holder can change what was read.
-- Tokens are decimal text, compared by length and then by their digits: exactly, however large.
local found = redis.call('HMGET', KEYS[1], 'token', 'owner', 'version')
local token, seen = ARGV[1], found[1]
if seen then
    local later = #seen > #token or (#seen == #token and seen > token)
    if later or (seen == token and found[2] ~= ARGV[2]) then return {seen, found[3] or '0'} end
end
redis.call('HSET', KEYS[1], 'token', token, 'owner', ARGV[2])
local problem = keep(KEYS[1], ARGV[3], not seen and not found[3])
return problem or content(KEYS[1], KEYS[2])
