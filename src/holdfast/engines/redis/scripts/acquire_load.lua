-- Take the lock for one claim, if it is free, and read a register under the guard of the grant: two steps in one.
--
-- KEYS     1…5 as acquire.lua  6 register  7 waiters present  [8 key of this claim's waiter]
-- ARGV     as acquire.lua
-- Returns  busy: as acquire.lua. Granted: a list of the token, and what load.lua returns; of the token alone if the
--          register was not read: the caller asks for it again, and learns why.
--
-- Idempotent, as both are. The register never expires. The guard is the first token of the block, and the owner. Whatever
-- becomes of the register, a lock that was granted is reported as granted.

local function acquire(KEYS, ARGV)
    -- include acquire
end

local function load_register(KEYS, ARGV)
    -- include load
end

local token = acquire({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[8]}, ARGV)
if type(token) ~= 'string' then return token end
local first = ARGV[3] == '1' and token or string.format('%.0f', token - ARGV[3] + 1)
local done, found = pcall(load_register, {KEYS[6], KEYS[7]}, {first, ARGV[1], '0'})
if not done or #found ~= 4 then return {token} end
return {token, found[1], found[2], found[3], found[4]}
