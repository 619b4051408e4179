-- Closing: keeps everybody out while holds may go on that a server lost together with its data.
--
-- Reads:   holds, state, tombstones; lock, now
-- Changes: guard, holds, tombstones; in the state 'guard', 'fence', 'mode' and details of the hold;
--          lock.count, lock.live, lock.mode, lock.fence
--
-- A closed lock has one more hold, which is revoked and exclusive, and nobody's. Its owner is the ids of
-- the holders that have not released the lock since, each followed by a space.

-- The name of that hold. No token is as short.
local CLOSED = 'closed'

-- Closes the lock because a waiter saw these holders, of which this is the largest fence, and they may
-- still be at work. They learn that the lock is lost only from their next renewal. This happens once: no
-- later reminder extends it.
local function close(generation, fence, duration, ids)
  local tombstone = generation .. ' ' .. int(fence)
  local owner = ''
  for id in string.gmatch(ids, '%S+') do
    if not has_tombstone(id) then owner = owner .. id .. ' ' end
  end
  if owner == '' or has_tombstone(tombstone) or is_ahead(fence) then return end
  drop_remains()
  add_tombstone(tombstone, duration)
  local details, deadline = details_of(CLOSED), redis.call('ZSCORE', HOLDS, CLOSED)
  if not deadline then lock.count, details = lock.count + 1, decoded('') end
  lock.live, lock.mode, lock.fence = true, 'exclusive', int(math.max(last_fence(), fence))
  details.mode, details.owner, details.status = 'exclusive', details.owner .. owner, 'revoked'
  details.fence, details.acquired, details.renewed = lock.fence, int(now), int(now)
  set_deadline(CLOSED, details, math.max(tonumber(deadline or 0), now + duration), 'fence', lock.fence,
    'mode', lock.mode)
end

-- Opens the lock again once the last of the holders has released it.
local function reopen(id)
  if not unexpired_hold(CLOSED) then return end
  local details, owner = details_of(CLOSED), ''
  for other in string.gmatch(details.owner, '%S+') do
    if other ~= id then owner = owner .. other .. ' ' end
  end
  details.owner = owner
  if owner == '' then drop_hold(CLOSED) else write_details(CLOSED, details) end
end
