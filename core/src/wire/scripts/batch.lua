-- BATCH: runs RELEASEs and then ACQUIREs, each for one lock in exclusive mode, with nothing between them. Returns for
-- each what its own script would return (see release.lua and acquire.lua), or -1: nothing was done, and the request must
-- be sent by itself. This is so if a waiter has to be notified, if the lock is held, or if the fence is not the proposed
-- fence. If the server refuses the whole script, nothing was done for any request.
--
-- KEYS: the queue of each RELEASE and then of each ACQUIRE; their lock keys, in the same order; the fence key of each
-- ACQUIRE.
-- ARGV: the number of RELEASEs, the ttl of the locks, and the minimum ttl of the fence keys (milliseconds); the token of
-- each RELEASE and of each ACQUIRE; the proposed fence of each ACQUIRE.

--- clock.lua
local releases, ttl, memory = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local all, done, free = (#KEYS + releases) / 3, {}, {}

local is_queued = redis.pcall('EXISTS', unpack(KEYS, 1, all)) ~= 0

for i = 1, releases do
  local lock = KEYS[all + i]
  if is_queued and redis.pcall('EXISTS', KEYS[i]) == 1 then
    done[i] = -1
  elseif redis.pcall('GET', lock) ~= ARGV[3 + i] then
    done[i] = 0
  else
    done[i], free[#free + 1] = 1, lock
  end
end
if free[1] then redis.call('DEL', unpack(free)) end

for i = releases + 1, all do
  local lock, fence, proposal = KEYS[all + i], KEYS[2 * all + i - releases], ARGV[3 + all + i - releases]
  local last, number = redis.pcall('GET', fence), tonumber(proposal)
  local is_next = number < FENCE_LIMIT and (not last or (tonumber(last) or FENCE_LIMIT) < number)
  local is_near = number - now <= FENCE_WINDOW and now - number <= FENCE_WINDOW
  done[i] = -1
  if is_next and is_near and not (is_queued and redis.pcall('EXISTS', KEYS[i]) == 1) then
    local set = redis.pcall('SET', lock, ARGV[3 + i], 'NX', 'PX', ttl)
    if set and set.ok then
      if redis.pcall('SET', fence, proposal, 'PX', memory).ok then
        done[i] = now
      else
        redis.pcall('DEL', lock)
      end
    end
  end
end
return done
