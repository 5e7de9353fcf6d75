-- Included by the scripts that look at all owners of a lock.
--
-- owners(lock): fields and values of the lock; or nil and an error reply, if the hash is not a lock: an application may
-- keep its own data under that name. Owners are <id>:<number>, ours and Redisson's; a Redisson read-write lock has
-- <id>:<number>:write too, and its mode. HLEN fails on a key of another type, and bounds what is read.
local function is_owner(field, count)
    if field == 'mode' then return count == 'read' or count == 'write' end
    local id = string.match(field, '^(%x[%x%-]+):%-?%d+$') or string.match(field, '^(%x[%x%-]+):%-?%d+:write$')
    return id and #id >= 16 and string.find(count, '^%d+$')
end

local function owners(lock)
    local fields = redis.call('HLEN', lock) <= 10000 and redis.call('HGETALL', lock) or {'', ''}
    for i = 1, #fields, 2 do
        if not is_owner(fields[i], fields[i + 1]) then
            return nil, redis.error_reply('HOLDFAST NOTALOCK the fields of this hash are not owners of a lock')
        end
    end
    return fields
end

