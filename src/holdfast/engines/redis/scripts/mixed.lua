-- Included by the scripts that release a lock.
--
-- is_mixed(lock): whether a lock that was let go is there still: as holds_alone's -2.
local function is_mixed(lock)
    if redis.call('EXISTS', lock) == 0 then return false end
    if redis.pcall('HLEN', lock) == 1 and redis.pcall('HEXISTS', lock, 'mode') == 1 then redis.pcall('DEL', lock) end
    return true
end

