-- Included by the scripts of semaphores that write the facts about holders, or need them, after permits_ids.lua and
-- permits_free.lua. They are a hash, owner -> its fact:
-- <token> <since> <permits> <size at the grant> <expires, ms> <description>.
--
-- restore(free, out, facts, now): put the permits that are out back into the sorted set, if it is gone (deleted by
-- another program, or evicted) and the number of free permits is not: how many. Else they would be neither free nor out,
-- and the semaphore smaller by them for ever. The facts are a second copy.
-- Never more than the size of the newest grant: where Java has deleted the semaphore and made it again, or has taken
-- back permits by a fast clock, they are among the free ones. Facts that cannot be used are removed.
local function restore(free, out, facts, now)
    if redis.call('EXISTS', facts) == 0 or redis.call('EXISTS', out) == 1 then return 0 end
    local number, taken, newest, size, members = number_of(free), 0, 0, 0, {}
    local found = redis.call('HGETALL', facts)
    for i = 1, #found, 2 do
        local token, count, at_grant, expires = string.match(found[i + 1], '^(%d+) [%d.]+ (%d+) (%d+) (%d+) ')
        if token and tonumber(expires) > now then
            taken = taken + count
            if tonumber(token) > newest then newest, size = tonumber(token), tonumber(at_grant) end
            for _, id in ipairs(permit_ids(found[i], count)) do
                members[#members + 1] = expires
                members[#members + 1] = id
            end
        end
    end
    if not number or taken == 0 or number + taken > size then
        redis.call('DEL', facts)
        return 0
    end
    each_chunk(members, function(...) redis.call('ZADD', out, ...) end)
    local left = redis.call('PTTL', free)
    if left > 0 then redis.call('PEXPIRE', out, left) end
    return taken
end

-- forget_dead(facts, held, now): remove the facts about holders whose permits have expired, if they are many. held: how
-- many permits are out, so at least as many as there are live holders.
local function forget_dead(facts, held, now)
    if redis.call('HLEN', facts) <= 2 * held then return end
    local found, dead = redis.call('HGETALL', facts), {}
    for i = 1, #found, 2 do
        local expires = string.match(found[i + 1], '^%d+ [%d.]+ %d+ %d+ (%d+) ')
        if not expires or tonumber(expires) <= now then dead[#dead + 1] = found[i] end
    end
    each_chunk(dead, function(...) redis.call('HDEL', facts, ...) end)
end

-- prolong(facts, owner, expires): the permits of this holder expire then, ms.
local function prolong(facts, owner, expires)
    local fact = redis.call('HGET', facts, owner)
    if not fact then return end
    local text = string.format('%.0f', expires)
    redis.call('HSET', facts, owner, (string.gsub(fact, '^(%d+ [%d.]+ %d+ %d+) %d+ ', '%1 ' .. text .. ' ')))
end

