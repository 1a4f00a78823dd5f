-- Returns the stored state of a semaphore: {waiters, known, slot, token, expires_in, fence, …}. `waiters` is
-- the length of the queue, -1 if unknown; `known` is the number of slots in the index. Each held slot has
-- four values: its number, its token ('' if the value is not a string), the time until the lock key expires
-- in milliseconds (-1: never), and the last fence (-1 if unknown). Writes nothing.
--
-- KEYS: the queue, the index, and the lock key and the fence key of each possible slot, in the order of
-- the slots. The index alone is not enough, because it may lack a held slot.

local waiters, known = redis.pcall('ZCARD', KEYS[1]), redis.pcall('ZCARD', KEYS[2])
if type(waiters) ~= 'number' then waiters = -1 end
if type(known) ~= 'number' then known = 0 end
local found = {waiters, known}
for i = 3, #KEYS, 2 do
  local token = redis.pcall('GET', KEYS[i])
  if token then
    -- A missing permission is an error; a value of another type is not.
    if type(token) ~= 'string' then
      if not string.find(token.err, 'WRONGTYPE', 1, true) then return token end
      token = ''
    end
    local fence = redis.pcall('GET', KEYS[i + 1])
    fence = type(fence) == 'string' and tonumber(fence) or -1
    for _, value in ipairs({(i - 3) / 2, token, redis.call('PTTL', KEYS[i]), fence}) do found[#found + 1] = value end
  end
end
return found
