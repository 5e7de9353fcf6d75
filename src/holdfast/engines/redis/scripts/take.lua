-- Included by the scripts that give a lock to a claim.
--
-- take(lock, owner, ttl, metadata, about) writes the lock and its metadata, or neither: returns nil, or an error reply.
-- A refusal between two commands (an ACL without PEXPIRE) would leave a lock without a TTL, which never expires. So
-- what was written is removed; by SET, which has just written the counter, if DEL is refused too.
local function take(lock, owner, ttl, metadata, about)
    local pcall = redis.pcall
    redis.call('HSET', lock, owner, '1')
    local reply = pcall('PEXPIRE', lock, ttl)
    if reply == 1 then
        reply = pcall('SET', metadata, about, 'PX', ttl)
        if reply.ok then return nil end
    end
    if type(pcall('DEL', lock)) ~= 'number' then pcall('SET', lock, '', 'PX', '1') end
    return reply
end

