-- The readers of a resource: a sorted set of their tokens. The score of a reader is the time at which
-- its share expires, by this node's clock, in milliseconds. While there are readers, the lock key holds
-- MARKER and expires no earlier than the last share. Without the marker nobody reads, whatever the set contains.
-- A resource that is locked exclusively has no such set; its lock key then takes the place of the
-- set's key in KEYS. For a permit, scripts that update the index have its key there (see permits.lua).
--
-- A script that inserts this has read what remains of the lock key (`pttl`, in milliseconds) before it reads the clock (`now`).
-- It then sets relative expiries (PEXPIRE, PX), to what remained or longer. So a pause of the server never makes a key expire
-- before the lease that it protects. A lease is counted from before its request was sent.

local clock = math.floor(now / 1000)

-- Runs a command on a set of readers. Returns nil if the key has a value of another type. Raises any other error: then the
-- user may not run the command.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  return not string.find(reply.err, 'WRONGTYPE', 1, true) and redis.call(...) or nil
end

-- Returns when the share of the token expires; nil if it has none. `value`: what the lock key holds, if that is known.
local function share(lock, readers, token, value)
  if readers == lock or (value or redis.pcall('GET', lock)) ~= MARKER then return nil end
  local till = read('ZSCORE', readers, token)
  till = till and tonumber(till)
  return till and till > clock and till or nil
end

-- Whether the token holds the resource, in either mode.
local function holds(lock, readers, token)
  return redis.pcall('GET', lock) == token or share(lock, readers, token) ~= nil
end

-- The time for which a lock key lasts that has to last so long, in milliseconds. A key without a ttl gets the longest one:
-- shares may last for that.
local function lasting(lock, ttl)
  return math.max(pttl[lock], pttl[lock] == -1 and LONGEST_TTL or ttl, ttl)
end

-- What remained of each key that was made to expire later.
local before = {}

local function set_expiry(key, ttl)
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(ttl, 0)))
end

-- Makes a lock key expire after a time in milliseconds. If there is none, deletes it at once.
local function expire_in(lock, ttl)
  before[lock] = before[lock] or pttl[lock]
  pttl[lock] = ttl > 0 and ttl or -2
  set_expiry(lock, ttl)
end

local function put_share(readers, token, ttl)
  return redis.pcall('ZADD', readers, string.format('%.0f', clock + ttl), token)
end

-- Makes the token the only reader, for a time in milliseconds.
local function begin_reading(lock, readers, token, ttl)
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', '+inf')
  put_share(readers, token, ttl)
  set_expiry(readers, ttl)
  redis.call('SET', lock, MARKER, 'PX', string.format('%.0f', ttl))
  pttl[lock] = ttl
end

-- Makes the token one more reader. Never shortens its share, if it has one (GT), or the life of a key. Returns the error if
-- ZADD is refused. It is not the first write, because a full server refuses it then.
local function join_readers(lock, readers, token, ttl)
  expire_in(lock, lasting(lock, ttl))
  local added = redis.pcall('ZADD', readers, 'GT', string.format('%.0f', clock + ttl), token)
  if type(added) == 'table' then return added end
  -- The set may be a new one: it was evicted, or the server was paused until it expired.
  if redis.call('PTTL', readers) < ttl then set_expiry(readers, ttl) end
end

-- Makes the keys expire with the last reader, after a share was removed or shortened. Deletes them if
-- there is none.
local function fit_expiry(lock, readers)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  local rest = math.min(tonumber(last[2] or 0) - clock, 1e15) -- Another program may have written the set.
  expire_in(lock, rest)
  set_expiry(readers, rest)
end

-- Removes the share of the token. Returns whether it was there: then no writer has been granted the
-- resource since, even if the share has expired.
local function stop_reading(lock, readers, token)
  if redis.pcall('GET', lock) ~= MARKER or redis.pcall('ZREM', readers, token) ~= 1 then
    return false
  end
  fit_expiry(lock, readers)
  return true
end

-- Whether the token is the only reader.
local function reads_alone(lock, readers, token)
  return share(lock, readers, token) ~= nil and redis.pcall('ZCOUNT', readers, '(' .. clock, '+inf') == 1
end
