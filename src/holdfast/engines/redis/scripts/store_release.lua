-- Write a register, if guard and version are still those of the last load, and then release its lock: two steps in one.
--
-- KEYS     1 lock  2 holder's metadata  3 what tombstones begin with  4… as store.lua
-- ARGV     1…4 as release.lua  5… as store.lua
-- Returns  stored: a number, as release.lua; nil: stored, but the lock could not be released. Refused: as store.lua, and
--          the lock is not released.
--
-- Idempotent: a repeat finds that it was stored, by its own guard and the next version, also if other holders have taken
-- over since (see load.lua). Both steps were made then, or the lock has ended by itself: it is answered as released.

local function store(KEYS, ARGV)
    -- include store
end

local function release(KEYS, ARGV)
    -- include release
end

local keys, arguments = {}, {}
for i = 4, #KEYS do keys[i - 3] = KEYS[i] end
for i = 5, #ARGV do arguments[i - 4] = ARGV[i] end
local register, token, owner = keys[1], arguments[1], arguments[2]

local function was_stored()
    -- include register
    local following = string.format('%.0f', arguments[3] + 1)
    local found = redis.call('HMGET', register, 'token', 'owner', 'version')
    if found[1] == token and found[2] == owner then return found[3] == following end
    return redis.call('GET', left(register, owner)) == following
end

local stored = store(keys, arguments)
local is_repeat = false
if type(stored) == 'table' then
    is_repeat = not stored.err and was_stored()
    if not is_repeat then return stored end
end
-- An error would hide that it was stored.
local done, held = pcall(release, {KEYS[1], KEYS[2], KEYS[3]}, ARGV)
if is_repeat then return 1 end
return done and type(held) == 'number' and held
