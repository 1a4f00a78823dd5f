-- INSPECT: returns the stored state of a resource: {kind, token, expires_in, fence, waiters}.
-- `kind` is 0 if there is no lock key, 1 if it holds a token, 2 if it holds a value of another
-- type. `expires_in` is in milliseconds, -1 if never. `fence` is the last fence, `waiters` the
-- length of the queue; each is -1 if unknown. Writes nothing.
--
-- KEYS: the lock key, the fence key, the queue.

local token, kind = redis.pcall('GET', KEYS[1]), 0
if type(token) == 'string' then
  kind = 1
elseif token then
  -- A missing permission is an error; a value of another type is not.
  if not string.find(token.err, 'WRONGTYPE', 1, true) then return token end
  kind, token = 2, ''
end
local fence = redis.pcall('GET', KEYS[2])
fence = type(fence) == 'string' and tonumber(fence) or -1
local waiters = redis.pcall('ZCARD', KEYS[3])
if type(waiters) ~= 'number' then waiters = -1 end
return {kind, token or '', redis.call('PTTL', KEYS[1]), fence, waiters}
