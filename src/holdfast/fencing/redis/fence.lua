-- Check a fencing token and then change or read the data, in one step.
--
-- KEYS[1]     the guard: "<token> +<owner>", or "<token> -" if no owner was named
-- KEYS[2..]   the data
-- ARGV[1]     the caller's token, decimal, without leading zeros
-- ARGV[2]     "+<owner>", or "-"; "<" of a reader: it passes if no newer token was seen, and is not stored
-- ARGV[3]     TTL of the guard in ms; "0": none
-- ARGV[4]     a command, called with the one data key and the arguments; "": only check;
--             "script": ARGV[5] is a Lua script, run with the data keys and the remaining arguments
-- ARGV[5..]   the arguments
--
-- Returns {"passed", reply}, or {"stale", token, owner} with the guard as it is, or {"foreign"} if the guard's key
-- holds something else, or {"syntax", message}. Only "passed" has changed anything.
-- Idempotent as far as the command is: the same token and owner pass again.

-- A token may be larger than 2^53, from which on Lua's numbers skip integers: compare as text.
local function newer(a, b)
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local guard = redis.pcall('GET', KEYS[1])
if type(guard) == 'table' then
  if string.find(guard.err, 'WRONGTYPE', 1, true) == 1 then
    return {'foreign'}
  end
  return guard
end
if guard then
  local token, owner = string.match(guard, '^(%d+) ([-+].*)$')
  if not token then
    return {'foreign'}
  end
  if ARGV[2] == '<' then
    if newer(token, ARGV[1]) then
      return {'stale', token, owner}
    end
  elseif not newer(ARGV[1], token) and not (ARGV[1] == token and ARGV[2] == owner) then
    return {'stale', token, owner}
  end
end

-- unpack() fails from about 8000 elements on, and a program's script may have more.
local function from(list, first)
  local rest = {}
  for index = first, #list do
    rest[#rest + 1] = list[index]
  end
  return rest
end

local data = from(KEYS, 2)
local body = nil
if ARGV[4] == 'script' then
  -- Compiled before the guard moves: a script with a syntax error changes nothing. It is a function of its own, with
  -- its own KEYS and ARGV; its "return" does not end this script. Without the semicolon a text that begins with an
  -- operator would continue our statement.
  local message
  body, message = loadstring('local KEYS, ARGV = ...; ' .. ARGV[5], '=script')
  if not body then
    return {'syntax', message}
  end
end

-- Always, also for an equal token: SET removes a TTL that an earlier setting left, or starts the present one again.
if ARGV[2] == '<' then
  if ARGV[3] ~= '0' then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
elseif ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
end

if body then
  return {'passed', (body(data, from(ARGV, 6)))}
elseif ARGV[4] ~= '' then
  return {'passed', redis.call(ARGV[4], KEYS[2], unpack(ARGV, 5))}
end
return {'passed'}
