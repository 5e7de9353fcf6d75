-- Tell a waiter how it stands in the queue of a register. It is present from here on.
--
-- KEYS     1 register  2 waiters present  3 registers with waiters (absent: it is not listed there)
-- ARGV     1 waiter  2 for how long it is present, ms  3 ttl of the register, ms ('0': none)  4 rank to count to
--          5 in which queue it was found to wait, and no waiter to be notified ('': in none)
-- Returns  '': not in the queue; 'W': it waits; 'N': it was notified. If a waiter of its condition was notified and is
--          absent, the number follows of those that are present and wait before it. '@' and a text: it waits, and no
--          waiter was notified, in the queue that the text denotes (see register.lua).
--
-- Idempotent. A thousand waiters look every two seconds at a queue of 20 KB. Nearly always it is the one that they have
-- looked at before, and it is not read. Else it is searched for one entry and for the mark N, and not parsed.
-- The queue is text: condition=waiter:mark,waiter:mark;condition=…

-- include register
local register, present, me = KEYS[1], KEYS[2], ARGV[1]
if keep_read(register, ARGV[3]) then list(KEYS[3], register, ARGV[3], true) end
local now = server_time()
local problem = attend(present, me, now, tonumber(ARGV[2]))
if problem then return problem end
local queued = redis.call('HMGET', register, 'queued')[1]
if not queued then return '' end
if queued == ARGV[5] then return '@' .. queued end
local queue = redis.call('HMGET', register, 'queue')[1] or ''

-- Of the condition whose waiters have this place among them: where they begin and end.
local function condition_at(place)
    local first, last = 1, #queue
    while true do
        local separator = string.find(queue, ';', first, true)
        if not separator then break end
        if separator > place then
            last = separator - 1
            break
        end
        first = separator + 1
    end
    return (string.find(queue, '=', first, true) or #queue) + 1, last
end

local function is_present(waiter)
    local until_when = redis.call('ZSCORE', present, waiter)
    return until_when and tonumber(until_when) > now
end

local place, first, last = 0
repeat
    first = nil
    place = string.find(queue, me .. ':', place + 1, true)
    if not place then return '' end
    local before = string.sub(queue, place - 1, place - 1)
    if before == '=' or before == ',' then first, last = condition_at(place) end
until first and first <= place
local mark = string.sub(queue, place + #me + 1, place + #me + 1)

if not string.find(queue, ':N', 1, true) then return '@' .. queued end
-- Bounded: a thousand may have been notified together. The first of them leave the queue, or become absent.
local notified, orphan = first - 1, false
for _ = 1, 8 do
    notified = string.find(queue, ':N', notified + 1, true)
    if not notified or notified > last then break end
    local waiter = string.match(string.sub(queue, math.max(first, notified - 64), notified - 1), '[%w%-]+$')
    orphan = waiter ~= me and not is_present(waiter)
    if orphan then break end
end
if not orphan then return mark end

local rank, most = 0, tonumber(ARGV[4])
if mark == 'W' then
    for waiter in string.gmatch(string.sub(queue, first, place - 1), '([%w%-]+):W') do
        if is_present(waiter) then rank = rank + 1 end
        if rank >= most then break end
    end
end
return mark .. rank
