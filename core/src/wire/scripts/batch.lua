-- BATCH: runs RELEASEs and then ACQUIREs, each for one lock in exclusive mode, with nothing between them. Returns for
-- each request what its own script would return (see release.lua and acquire.lua), or -1 if this script did nothing for
-- the request. The client must then send the request alone. A RELEASE gets -1 if its queue exists. An ACQUIRE gets -1
-- if its queue exists, if the fence would not be the proposed fence, or if the server refuses a command. If the whole
-- script fails, it has changed nothing.
--
-- KEYS: the queue of each RELEASE and then of each ACQUIRE; their lock keys, in the same order; the fence key of each
-- ACQUIRE.
-- ARGV: the number of RELEASEs, the ttl of the locks, and the minimum ttl of the fence keys (milliseconds); the token
-- of each RELEASE and of each ACQUIRE; the proposed fence of each ACQUIRE.

--- clock.lua
local releases, ttl, memory = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local count, replies, released = (#KEYS + releases) / 3, {}, {}
local is_queued = redis.pcall('EXISTS', unpack(KEYS, 1, count)) ~= 0

for i = 1, releases do
  local lock = KEYS[count + i]
  if is_queued and redis.pcall('EXISTS', KEYS[i]) == 1 then
    replies[i] = -1
  elseif redis.pcall('GET', lock) ~= ARGV[3 + i] then
    replies[i] = 0
  else
    replies[i], released[#released + 1] = 1, lock
  end
end
local is_full = false
if released[1] then
  -- A server without memory refuses only the first write of a script. This ZADD changes nothing.
  local tried = redis.pcall('ZADD', KEYS[1], 'XX', '0', '')
  is_full = type(tried) == 'table' and string.find(tried.err, 'OOM', 1, true)
  redis.call('DEL', unpack(released))
end

for i = releases + 1, count do
  local lock, fence, proposal = KEYS[count + i], KEYS[2 * count + i - releases], ARGV[3 + count + i - releases]
  local last, number = redis.pcall('GET', fence), tonumber(proposal)
  local is_next = number < FENCE_LIMIT and (not last or (tonumber(last) or FENCE_LIMIT) < number)
  local is_near = number - now <= FENCE_WINDOW and now - number <= FENCE_WINDOW
  replies[i] = -1
  if is_next and is_near and not is_full and not (is_queued and redis.pcall('EXISTS', KEYS[i]) == 1) then
    local set = redis.pcall('SET', lock, ARGV[3 + i], 'NX', 'PX', ttl)
    if not set then
      -- As in acquire.lua: PTTL is 0 in the last millisecond of a key.
      local pttl, holder = redis.pcall('PTTL', lock), redis.pcall('GET', lock)
      if type(pttl) == 'number' and holder ~= ARGV[3 + i] then
        holder = type(holder) == 'string' and string.sub(holder, 1, MAX_TOKEN + 1) or ''
        replies[i] = {0, pttl < 0 and -1 or math.max(pttl, 1), now, -1, holder}
      end
    elseif set.ok then
      if redis.pcall('SET', fence, proposal, 'PX', memory).ok then
        replies[i] = now
      else
        redis.pcall('DEL', lock)
      end
    end
  end
end
return replies
