-- Extends the caller's lease to expire one TTL from now.
--
-- ARGV[3] ttl  in ms; '': as before
--
-- Replies:
-- { 'renewed', fence, ms until it expires, number of its slot or '', ms until it expired before }
-- { 'not-held', why_not_held() }

reconcile()

local deadline = valid_hold()
local reply
if deadline then
  -- exec and a keeper rely on the lease that they have. Only a script that called acquire may
  -- shorten its lease.
  local not_before = string.find(own.about, '^\nkind acquire\n') and 0 or deadline
  local ttl = tonumber(ARGV[3]) or tonumber(own.ttl)
  reply = { 'renewed', own.fence, extend(ttl, not_before), own.slot, deadline - now }
else
  write_nothing()
  reply = { 'not-held', why_not_held() }
end
admit()
return reply
