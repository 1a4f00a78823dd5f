-- The queue of those who wait for a resource: a sorted set of their names. The score is the waiter's
-- ticket; or, of one that was called, the time in microseconds until which it goes before all others,
-- with a minus. A name is the client's channel, `#`, and the number by which the client knows the
-- waiter.
--
-- A queue decides nothing: where it is lost, forbidden or nonsense, waiters find out by trying.

-- `kept`: for how many milliseconds a queue that nobody joins is kept.
local function put(queue, score, waiter, kept)
  local put = redis.pcall('ZADD', queue, string.format('%.0f', score), waiter)
  -- Else it is something else of that name, and not ours to expire.
  if type(put) == 'number' then redis.pcall('PEXPIRE', queue, kept) end
end

-- For how long one that was called still goes first. None is called for so long that this could be
-- true of a call from the future, as it is where the clock was set back.
local function left(score, now)
  local left = -score - now
  return score < 0 and left <= LONGEST_CALL and math.max(left, 0) or 0
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
    local is_called = left(score, now) > 0
    if is_called and not is_new then return end
    local heard = 0
    local channel, number = string.match(waiter, '^(.*)#(%d+)$')
    -- One that was called and did not come is not called again.
    if channel and (score > 0 or is_called) then
      heard = redis.pcall('PUBLISH', channel, number .. ' ' .. lock)
      if type(heard) == 'table' then return end
    end
    if heard > 0 then return put(queue, -(now + length), waiter, kept) end
    redis.pcall('ZREM', queue, waiter)
  end
end
