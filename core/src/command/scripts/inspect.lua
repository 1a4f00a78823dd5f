-- INSPECT: what is kept of a resource: {what the lock key holds (0: nothing, 1: a token, 2: anything else),
-- the token, for how many milliseconds (-1: for ever), the last fence (-1: none), how many wait (-1: not
-- known)}. It writes nothing.
--
-- KEYS: the lock key, the fence key, the queue.

local token, kind = redis.pcall('GET', KEYS[1]), 0
if type(token) == 'string' then
  kind = 1
elseif token then
  -- Not of a value of another type, but of a user who may not look.
  if not string.find(token.err, 'WRONGTYPE', 1, true) then return token end
  kind, token = 2, ''
end
local fence = redis.pcall('GET', KEYS[2])
fence = type(fence) == 'string' and tonumber(fence) or -1
local waiters = redis.pcall('ZCARD', KEYS[3])
if type(waiters) ~= 'number' then waiters = -1 end
return {kind, token or '', redis.call('PTTL', KEYS[1]), fence, waiters}
