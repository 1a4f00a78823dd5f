-- The readers of a resource: a sorted set of their tokens. The score of a reader is the time at which its share
-- expires, by this node's clock, in milliseconds. While there are readers, the lock key holds MARKER and expires no
-- earlier than the last share. Without the marker, there are no readers, whatever the set contains. For a
-- resource that a request locks exclusively, KEYS contains the lock key in place of the key of the set. For a permit,
-- a script that updates the index gets the key of the index in this place (see permits.lua).
--
-- Before a script inserts this file, the script must read the remaining ttl of each lock key (`pttl`, in milliseconds),
-- and after that the clock (`now`). Unless the script ends a lock or a share, it sets only relative expiries (PEXPIRE,
-- PX) that are not shorter than the remaining ttl. So a pause of the server never makes a key expire before the end of
-- the lease that the key protects. (A client counts the ttl of a lease from a moment before the client sends the
-- request.)

local clock = math.floor(now / 1000)

-- Runs a command on a set of readers. Returns nil if the key has a value of another type. Raises any other error: the
-- user lacks permission for the command.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  return not string.find(reply.err, 'WRONGTYPE', 1, true) and redis.call(...) or nil
end

-- Returns the time at which the token's share expires, in milliseconds; nil if the token has no valid
-- share. `value`: the value of the lock key, if it is known.
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

-- Returns the new ttl for a lock key that must last for at least `ttl`, in milliseconds. The new ttl is
-- never shorter than the remaining ttl. A key without a ttl gets the longest ttl, because a share may last
-- for that long.
local function lasting(lock, ttl)
  return math.max(pttl[lock], pttl[lock] == -1 and LONGEST_TTL or ttl, ttl)
end

-- For each key whose expiry `expire_in` has changed: the ttl before the first change.
local before = {}

local function set_expiry(key, ttl)
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(ttl, 0)))
end

-- Makes a key expire in `ttl` milliseconds. If `ttl` is not positive, deletes the key.
local function expire_in(lock, ttl)
  before[lock] = before[lock] or pttl[lock]
  pttl[lock] = ttl > 0 and ttl or -2
  set_expiry(lock, ttl)
end

local function put_share(readers, token, ttl)
  return redis.pcall('ZADD', readers, string.format('%.0f', clock + ttl), token)
end

-- Makes the token the only reader, for `ttl` milliseconds.
local function begin_reading(lock, readers, token, ttl)
  redis.call('ZREMRANGEBYSCORE', readers, '-inf', '+inf')
  put_share(readers, token, ttl)
  set_expiry(readers, ttl)
  redis.call('SET', lock, MARKER, 'PX', string.format('%.0f', ttl))
  pttl[lock] = ttl
end

-- Makes the token one more reader, or extends its share. Never shortens a share (GT) or the ttl of a key. Returns the
-- error if ZADD is refused. A full server refuses ZADD only as the first write of a script, so PEXPIRE comes first.
local function join_readers(lock, readers, token, ttl)
  expire_in(lock, lasting(lock, ttl))
  local added = redis.pcall('ZADD', readers, 'GT', string.format('%.0f', clock + ttl), token)
  if type(added) == 'table' then return added end
  -- The set may be new and have no ttl: the old set was evicted, or expired while the server was paused.
  if redis.call('PTTL', readers) < ttl then set_expiry(readers, ttl) end
end

-- Makes the lock key and the set expire when the last share expires. Called after a share was removed or
-- shortened. Deletes both keys if no valid share is left.
local function fit_expiry(lock, readers)
  local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  local rest = math.min(tonumber(last[2] or 0) - clock, 1e15) -- Another program may have written the set.
  expire_in(lock, rest)
  set_expiry(readers, rest)
end

-- Removes the share of the token, even if the share has expired. Returns whether the set still had the
-- share. If so, no writer has been granted the resource since the token became a reader.
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
