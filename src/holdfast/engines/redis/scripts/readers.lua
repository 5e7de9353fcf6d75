-- Included by the scripts that end a hold of a read-write lock.
--
-- until_last(lock, prefix, leaving): for how many ms the readers but ``leaving`` have the lock; nil: as long as the lock
-- itself lasts, or nearly. A reader has it for as long as its time-out keys exist, one for each of its holds: Redisson
-- counts them, holdfast's is always 1. Not every reader is looked at: the first that lasts nearly as long is enough,
-- and with many readers of one ttl that is one of the first.
-- Second value: the readers whose time is over. They died without a release.
local function until_last(lock, prefix, leaving)
    local left, longest, dead = redis.call('PTTL', lock), 0, {}
    local fields = redis.call('HGETALL', lock)
    for i = 1, #fields, 2 do
        local field, lasts = fields[i], 0
        if field ~= 'mode' and field ~= leaving then
            for hold = math.min(tonumber(fields[i + 1]) or 0, 100), 1, -1 do
                lasts = math.max(lasts, redis.call('PTTL', prefix .. ':' .. field .. ':rwlock_timeout:' .. hold))
            end
            if lasts * 10 >= left * 9 then return nil, dead end
            if lasts <= 0 and #dead < 100 then dead[#dead + 1] = field end
            longest = math.max(longest, lasts)
        end
    end
    return longest, dead
end

