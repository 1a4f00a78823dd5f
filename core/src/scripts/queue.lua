-- The queue of those who wait for a resource: a sorted set of their names. The score is the waiter's
-- ticket; or, of one that was called, the time in microseconds until which it goes before all others,
-- with a minus. A name is the client's channel, `#`, and the number by which the client knows the
-- waiter.
--
-- A queue decides nothing: where it is lost, forbidden or nonsense, waiters find out by trying.

-- `kept`: for how many milliseconds a queue that nobody joins is kept.
local function put(queue, score, waiter, kept)
  redis.pcall('ZADD', queue, string.format('%.0f', score), waiter)
  redis.pcall('PEXPIRE', queue, kept)
end

-- Calls the first waiter that listens, unless one was called already. Who does not listen is gone.
-- `is_new`: the resource has just become free.
local function call_next(lock, queue, is_new, length, kept)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  for _ = 1, MOST_GONE do
    local first = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local waiter, score = first[1], tonumber(first[2])
    if not waiter then return end
    local is_called, is_late = score < 0, score < 0 and -score <= now
    if is_called and not is_late and not is_new then return end
    local heard = 0
    local channel, number = string.match(waiter, '^(.*)#(%d+)$')
    if channel and not is_late then
      heard = redis.pcall('PUBLISH', channel, number .. ' ' .. lock)
      if type(heard) == 'table' then return end
    end
    if heard > 0 then return put(queue, -(now + length), waiter, kept) end
    redis.pcall('ZREM', queue, waiter)
  end
end
