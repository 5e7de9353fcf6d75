-- Included by the scripts that release a lock.
--
-- hand_over(lock, metadata, side, channel, how, entry, from): gives the lock, which ``from`` has just let go, to the
-- waiter ``entry``, or to one behind it, and pushes the token to it. ``side``: what keys beside the lock begin with;
-- ``channel``, ``how``: as in publish.lua. Returns 'given'; 'mixed': see holds.lua; 'yielded': it is another program's turn, whose waiters were
-- woken; 'free': there is no waiter that it can be given to, and it is to be published that the lock is free.
--
-- The lease is short until the new owner confirms it: it may have died. A waiter that gets the push holds the lock, so
-- it is never taken back, unless no client got it. The count of a push is that of this server's clients: its
-- replicas have passed it on to theirs.
-- A waiter at the front that cannot be pushed to stays there. It watches the lock, and finds it free.
-- include next_token take
local function hand_over(lock, metadata, side, channel, how, entry, from)
    local call, pcall = redis.call, redis.pcall
    local suffix = string.sub(channel, 23)
    local queue = 'holdfast_queue' .. suffix
    local gone, others, unheard = side .. ':gone:', side .. ':others', side .. ':unheard'
    local fair = 'redisson_lock_queue' .. suffix

    -- Of a waiter that can be pushed to: wire, lease, tokens, ttl of the counter, claim, owner. '': of another one. nil: it
    -- is dead.
    local function facts()
        if string.find(entry, ' ', 1, true) then
            return string.match(entry, '^%x+ (%a%x+) (%d+) [%d.]+ (%d+) (%d+) ((%S+) .*)$')
        end
        local about = call('GET', queue .. ':' .. entry)
        if not about then return nil end
        local claim, owner, wire, lasts, tokens, keep =
            string.match(about, '^%S+ ((%S+) [^%z]*)%z(%a%x+) (%d+) (%d+) (%d+)$')
        return wire or '', lasts, tokens, keep, claim, owner
    end

    -- With the id, by which it tells this place in the queue from those that it has had before.
    local function push(wire, owner, token)
        local id, message = string.sub(wire, 2), string.match(entry, '^%x+') .. ' ' .. owner .. ' ' .. token
        if string.sub(wire, 1, 1) ~= 's' then return pcall('PUBLISH', 'holdfast_wake:' .. id, message) end
        return pcall('SPUBLISH', 'holdfast_wake' .. suffix .. ':' .. id, message)
    end

    -- It was the only one, perhaps: then the queue is a new key.
    local function put_back()
        if pcall('LPUSH', queue, entry) == 1 and pcall('PEXPIRE', queue, '4000') ~= 1 then pcall('LPOP', queue) end
    end

    local function drop()
        if not string.find(entry, ' ', 1, true) then pcall('DEL', queue .. ':' .. entry) end
    end

    for _ = 1, 100 do
        local wire, lasts, tokens, keep, claim, owner = facts()
        if wire == '' then break end
        -- One command for all of them: nearly always there is none.
        local found = wire and call('EXISTS', lock, gone .. owner, others, unheard, fair) or 0
        local known, queues, dead = false, false, owner == from  -- from itself: a duplicate of its request to join
        if found ~= 0 then
            -- include mixed listens
            if is_mixed(lock) then
                put_back()
                return 'mixed'
            end
            known, queues = call('EXISTS', others) == 1, call('EXISTS', fair) == 1
            dead = dead or call('EXISTS', gone .. owner) == 1
                or call('EXISTS', unheard) == 1 and not listens(wire, suffix)
        end
        if dead then
            drop()
            wire = nil
        end
        if wire then
            local token, time, held = next_token('redisson_lock_token' .. suffix, tokens, keep)
            if not token then break end
            if known or queues or held > 5000 or token % 32 == 0 then
                -- include publish yield
                if others_turn(side) and (publish(channel, how, '0') or queues) and yield(side) then
                    put_back()
                    push(wire, owner, '-')  -- from now on it watches the lock
                    return 'yielded'
                end
            end
            if take(lock, owner, lasts, metadata, token .. ' ' .. tokens .. ' ' .. time .. ' ' .. claim) then break end
            local heard = push(wire, owner, token)
            local given = type(heard) == 'number' and heard > 0
            if heard == 0 then
                -- If it was passed on to another server, it may have been heard there.
                local about = pcall('INFO', 'replication')
                given = type(about) ~= 'string' or not string.find(about, 'connected_slaves:0', 1, true)
                    or not string.find(about, 'repl_backlog_active:0', 1, true)
                if given then pcall('SET', unheard, '1', 'PX', '10000') end
            end
            if given then
                drop()
                return 'given'
            end
            call('DEL', lock)
            if heard ~= 0 then break end  -- refused
            drop()
        end
        entry = call('LPOP', queue)
        if not entry then return 'free' end
    end
    put_back()
    return 'free'
end

