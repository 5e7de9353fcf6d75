-- Included by the scripts of semaphores.
--
-- A semaphore is Redisson's RPermitExpirableSemaphore: a string with the number of free permits, and a sorted set of
-- those that are out, id -> when it expires, ms. size = free + out. Ours has facts about its holders beside it.
--
-- permit_ids(owner, count): the ids of a claim's permits, 16 bytes each, the same for each repeat of the claim.
local function permit_ids(owner, count)
    local ids = {}
    for i = 1, tonumber(count) do ids[i] = string.sub(redis.sha1hex(owner .. '#' .. i), 1, 16) end
    return ids
end

-- each_chunk(list, act): Lua passes no more than some thousand arguments at once.
local function each_chunk(list, act)
    for start = 1, #list, 1000 do act(unpack(list, start, math.min(start + 999, #list))) end
end

