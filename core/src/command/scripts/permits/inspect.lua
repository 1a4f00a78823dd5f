-- Returns the stored state of a semaphore: {waiters, known, slot, token, expires_in, fence, …}. `waiters` is
-- the length of the queue, -1 if unknown; `known` is the number of slots in the index. Then come, for each
-- slot that is held, its number, its token ('' if it is no text), the time until it expires in milliseconds
-- (-1: never), and the last fence (-1 if unknown). Writes nothing.
--
-- KEYS: the queue and the index.
-- ARGV: the beginning of all lock keys, and what follows the number in fence keys.

local waiters, known = redis.pcall('ZCARD', KEYS[1]), redis.pcall('ZCARD', KEYS[2])
if type(waiters) ~= 'number' then waiters = -1 end
if type(known) ~= 'number' then known = 0 end
local found = {waiters, known}
-- Clients with a larger limit may hold slots that the index lacks, because EXTEND does not renew it.
for slot = 0, MAX_PERMITS - 1 do
  local lock = ARGV[1] .. slot
  local token = redis.pcall('GET', lock)
  if token then
    -- A missing permission is an error; a value of another type is not.
    if type(token) ~= 'string' then
      if not string.find(token.err, 'WRONGTYPE', 1, true) then return token end
      token = ''
    end
    local fence = redis.pcall('GET', lock .. ARGV[2])
    fence = type(fence) == 'string' and tonumber(fence) or -1
    for _, value in ipairs({slot, token, redis.call('PTTL', lock), fence}) do found[#found + 1] = value end
  end
end
return found
