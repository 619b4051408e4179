
# The names of locks that are held, from the server that RLOCK_URL names; none if it does not answer
# soon. COMP_LINE has the word whole, which bash takes apart at each colon.
_rlock_names() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }" before=""
    [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && before="${word%"${word##*:}"}"
    local names
    names=$("$1" inspect --quiet --names --io-timeout 500ms 2>/dev/null) || return 0
    local name
    while IFS= read -r name; do
        [[ -n "$name" && "$name" == "$word"* ]] && COMPREPLY+=("${name#"$before"}")
    done <<<"$names"
}

_rlock_and_names() {
    _rlock "$@"
    case "${COMP_WORDS[1]}" in
        inspect | release | renew)
            if [[ "$2" != -* && "$3" != -* ]]; then
                COMPREPLY=()
                _rlock_names "$1"
            fi
            ;;
    esac
}

complete -F _rlock_and_names -o bashdefault -o default rlock
