
# The names of held locks, from the server in RLOCK_URL; none if it does not answer soon.
_rlock_names() {
    local -a names
    names=(${(f)"$(rlock inspect --quiet --names --io-timeout 500ms 2>/dev/null)"})
    compadd -a names
}
