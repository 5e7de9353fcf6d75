"""Runs the shipped Lua files with the real Lua 5.1 and converts arguments and replies as Redis does."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.simulation.redis_model.keyspace import ReplyError

# redis.call raises an error reply, redis.pcall returns it; a script sees KEYS, ARGV and no other global of its own.
_PRELUDE: Final = rb"""
local dispatch, sha1hex = ...
local redis = {
  pcall = dispatch,
  sha1hex = sha1hex,
  call = function(...)
    local reply = dispatch(...)
    if type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
  end,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
  log = function() end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
}
local struct = {
  pack = function(format, ...)
    assert(format == '>I4I4I4I4', 'only what the shipped scripts use')
    local packed = {}
    for i, number in ipairs({...}) do
      packed[i] = string.char(math.floor(number / 16777216), math.floor(number / 65536) % 256,
        math.floor(number / 256) % 256, number % 256)
    end
    return table.concat(packed)
  end,
}
local known = {
  redis = redis, struct = struct, string = string, table = table, math = math,
  assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall, select = select,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
}
setmetatable(known, {__index = function(_, name)
  error('Script attempted to access nonexistent global variable \'' .. name .. '\'', 2)
end})
local sandbox = {
  __index = known,
  __newindex = function(_, name) error('Attempt to create global variable \'' .. name .. '\'', 2) end,
}
local function compile(source)
  local script, problem = loadstring(source, '@user_script')
  return script or problem
end
local function invoke(script, count, ...)
  local words, keys, argv = {...}, {}, {}
  for i = 1, count do keys[i] = words[i] end
  for i = count + 1, #words do argv[i - count] = words[i] end
  setfenv(script, setmetatable({KEYS = keys, ARGV = argv}, sandbox))
  local done, result = pcall(script)
  if done then return result end
  if type(result) == 'table' and result.err then return result end
  return {err = 'ERR ' .. tostring(result)}
end
return {compile, invoke}
"""


class LuaHost:
    """One Lua interpreter. Scripts keep no state, so all simulated servers can share it."""

    def __init__(self) -> None:
        try:
            from lupa import lua51
        except ImportError as missing:
            raise ImportError(
                "the simulation runs the shipped Lua scripts with 'lupa', a development dependency: pip install lupa"
            ) from missing
        self._table_type = type(lua51.LuaRuntime().table())
        self._lua = lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self._call: Callable[[Sequence[bytes]], Any] | None = None
        self._bug: BaseException | None = None
        parts = self._lua.execute(_PRELUDE, self._dispatch, _sha1hex)
        self._compile_lua, self._invoke = parts[1], parts[2]
        self.compile = functools.cache(self._compile)

    def _compile(self, source: str) -> Any:
        script = self._compile_lua(source.encode())
        if isinstance(script, bytes):
            raise ReplyError(f"ERR Error compiling script (new function): {script.decode()}")
        return script

    def run(
        self, source: str, keys: Sequence[bytes], args: Sequence[bytes], call: Callable[[Sequence[bytes]], Any]
    ) -> Any:
        """Run a script; ``call`` executes each of its commands and returns the reply or raises ReplyError."""
        script = self.compile(source)
        self._call, self._bug = call, None
        result = self._invoke(script, len(keys), *keys, *args)
        if self._bug is not None:
            raise self._bug
        return self._reply(result)

    def _dispatch(self, *words: Any) -> Any:
        assert self._call is not None
        try:
            reply = self._call([word if type(word) is bytes else _number(word) for word in words])
            return reply if type(reply) is int or type(reply) is bytes else self._to_lua(reply)
        except ReplyError as error:
            return self._lua.table_from({b"err": str(error).encode()})
        except BaseException as bug:  # a bug of the model, not of the script: a pcall in Lua must not hide it
            self._bug = bug
            raise

    def _to_lua(self, reply: Any) -> Any:
        if reply is None:
            return False
        if isinstance(reply, str):
            return self._lua.table_from({b"ok": reply.encode()})
        if isinstance(reply, list):
            return self._lua.table_from([self._to_lua(item) for item in reply])
        return reply

    def _reply(self, result: Any) -> Any:
        """Lua to RESP: numbers are cut to integers, true is 1, false and nil are null; an array ends at a nil."""
        if result is None or result is False:
            return None
        if isinstance(result, (bool, int, float)):
            return int(result)
        if isinstance(result, bytes):
            return result
        if not isinstance(result, self._table_type):
            raise NotImplementedError(f"a script returned a {type(result).__name__}")
        if (error := result[b"err"]) is not None:
            raise ReplyError(error.decode())
        if (status := result[b"ok"]) is not None:
            return status
        items: list[Any] = []
        while (item := result[len(items) + 1]) is not None:
            items.append(self._reply(item))
        return items


def _sha1hex(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _number(word: Any) -> bytes:
    """An argument of redis.call that is not a string: a number is sent with 17 digits (``..`` in Lua gives only 14)."""
    if isinstance(word, (int, float)) and not isinstance(word, bool):
        return b"%.17g" % word
    raise ReplyError("ERR Lua redis lib command arguments must be strings or integers")


@functools.cache
def shared_host() -> LuaHost:
    """One interpreter for the whole process: creating one takes longer than simulating a minute."""
    return LuaHost()
