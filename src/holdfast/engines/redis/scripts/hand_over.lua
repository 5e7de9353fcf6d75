-- Included by the scripts that release a lock.
--
-- hand_over(lock, metadata, side, channel, how, entry, from): gives the lock, which ``from`` has just let go, to the
-- waiter ``entry``, or to one behind it, and pushes the token to it. ``side``: what keys beside the lock begin with;
-- ``channel``, ``how``: as in publish.lua. Returns 'given'; 'mixed': see holds.lua; 'yielded': it is another program's
-- turn, whose waiters were woken; 'free': there is no waiter that it can be given to, and it is to be published that the
-- lock is free.
--
-- The lease is short until the new owner confirms it: it may have died. A waiter that gets the push holds the lock, so
-- it is never taken back, unless no client got it. The count of a push is that of this server's clients: its
-- replicas have passed it on to theirs.
-- A waiter at the front that cannot be pushed to stays there. It watches the lock, and finds it free.
local function hand_over(lock, metadata, side, channel, how, entry, from)
    local call, try = redis.call, redis.pcall
    local suffix = string.sub(channel, 23)
    local queue, fair = 'holdfast_queue' .. suffix, 'redisson_lock_queue' .. suffix
    local outcome = 'free'
    for _ = 1, 100 do
        -- ``key``: of one that has it, see turn.lua; ``owner``, nil: it is dead; ``kind`` and ``number``: its wire.
        local id, kind, number, lasts, tokens, keep, claim, owner =
            string.match(entry, '^(%x+) (%a)(%x+) (%d+) %S+ (%d+) (%d+) ((%S+) .*)$')
        local key
        if not id then
            id, key = entry, queue .. ':' .. entry
            local about = call('GET', key)
            if about then
                claim, owner, kind, number, lasts, tokens, keep =
                    string.match(about, '^%S+ ((%S+) [^%z]*)%z(%a)(%x+) (%d+) (%d+) (%d+)$')
                if not owner then break end
            end
        end
        local known, queues, word, wire = false, false
        if owner then
            word, wire = 'PUBLISH', 'holdfast_wake:' .. number
            if kind == 's' then word, wire = 'SPUBLISH', 'holdfast_wake' .. suffix .. ':' .. number end
            -- One command for all of them: nearly always there is none.
            local gone, others, unheard = side .. ':gone:' .. owner, side .. ':others', side .. ':unheard'
            if call('EXISTS', lock, gone, others, unheard, fair) ~= 0 then
                -- include mixed listens
                if is_mixed(lock) then
                    outcome = 'mixed'
                    break
                end
                known, queues = call('EXISTS', others) == 1, call('EXISTS', fair) == 1
                if call('EXISTS', gone) == 1 or call('EXISTS', unheard) == 1 and not listens(word, wire) then owner = nil end
            end
            if owner == from then owner = nil end  -- a duplicate of its request to join
        end
        if owner then
            -- include next_token take
            local token, time, held = next_token('redisson_lock_token' .. suffix, tokens, keep)
            if not token then break end
            -- With the id, by which it tells this place in the queue from those that it has had before.
            local message = id .. ' ' .. owner .. ' '
            if known or queues or held > 5000 or token % 32 == 0 then
                -- include publish yield
                -- (Where no others are known, none has had a turn lately.)
                if (not known or others_turn(side)) and (publish(channel, how, '0') or queues) and yield(side) then
                    try(word, wire, message .. '-')  -- from now on it watches the lock
                    outcome = 'yielded'
                    break
                end
            end
            if take(lock, owner, lasts, metadata, token .. ' ' .. tokens .. ' ' .. time .. ' ' .. claim) then break end
            local heard = try(word, wire, message .. token)
            local given = type(heard) == 'number' and heard > 0
            if heard == 0 then
                -- If it was passed on to another server, it may have been heard there.
                local about = try('INFO', 'replication')
                given = type(about) ~= 'string' or not string.find(about, 'connected_slaves:0', 1, true)
                    or not string.find(about, 'repl_backlog_active:0', 1, true)
                if given then try('SET', side .. ':unheard', '1', 'PX', '10000') end
            end
            if given then
                if key then try('DEL', key) end
                return 'given'
            end
            call('DEL', lock)
            if heard ~= 0 then break end  -- refused
        end
        if key then try('DEL', key) end
        entry = call('LPOP', queue)
        if not entry then return 'free' end
    end
    -- It was the only one, perhaps: then the queue is a new key.
    if try('LPUSH', queue, entry) == 1 and try('PEXPIRE', queue, '4000') ~= 1 then try('LPOP', queue) end
    return outcome
end
