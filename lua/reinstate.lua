-- Reinstatement: restores holds that a server lost together with its data.
--
-- Reads:   holds, tombstones; lock, now
-- Changes: guard, holds, tombstones; in the state 'guard', 'fence', 'mode' and details of the hold;
--          lock.count, lock.live, lock.mode, lock.fence

-- Reinstates a hold that a waiter has seen. Its holder may still be at work, and learns that the
-- lock is lost only from its next renewal. Until the lease expires, the hold excludes all others,
-- as a revoked one. This happens once: no later reminder extends it. The hold is stored under its
-- id, because only its holder knows the token. An id is shorter than any token.
local function reinstate(id, about, fence, acquired, ttl, slot)
  if string.len(id) > 8 or has_tombstone(id) or is_ahead(tonumber(fence))
    or redis.call('ZSCORE', HOLDS, id) then
    return
  end
  drop_remains()
  add_tombstone(id, tonumber(ttl))
  lock.count, lock.live, lock.mode = lock.count + 1, true, 'exclusive'
  lock.fence = int(math.max(last_fence(), tonumber(fence)))
  local details = decoded('')
  details.mode, details.about, details.fence = 'exclusive', string.sub(about, 1, MAX_DETAIL), fence
  details.acquired, details.renewed = acquired, int(now)
  details.status, details.slot = 'revoked', slot
  set_deadline(id, details, now + ttl, 'fence', lock.fence, 'mode', lock.mode)
end
