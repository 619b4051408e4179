
# The names of locks that are held, from the server that RLOCK_URL names; none if it does not answer
# soon.
_rlock_names() {
    local -a names
    names=(${(f)"$(rlock inspect --quiet --names --io-timeout 500ms 2>/dev/null)"})
    compadd -a names
}
