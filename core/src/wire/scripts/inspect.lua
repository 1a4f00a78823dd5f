-- INSPECT: returns the stored state of a resource: {kind, token, expires_in, fence, waiters,
-- readers}.
-- `kind` is 0 if there is no lock key, 1 if the lock key holds a string, and 2 if it holds a value of
-- another type. `expires_in` is in milliseconds (-1: never; -2: there is no lock key). `fence` is the last
-- fence, and `waiters` is the length of the queue; each is -1 if unknown. `readers` has the token of each
-- reader, followed by the time until the reader's share expires, in milliseconds. Writes nothing.
--
-- KEYS: the lock key, the fence key, the queue, the readers.

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
local readers = {}
if token == MARKER then
  local time = redis.call('TIME')
  local clock = time[1] * 1000 + math.floor(time[2] / 1000)
  readers = redis.pcall('ZRANGEBYSCORE', KEYS[4], '(' .. clock, '+inf', 'WITHSCORES')
  if readers.err then readers = {} end
  for i = 2, #readers, 2 do readers[i] = readers[i] - clock end
end
return {kind, token or '', redis.call('PTTL', KEYS[1]), fence, waiters, readers}
