cpdef start(object coroutine, object life)
cpdef fork(object coroutine, object life)
cpdef start_in_background(object coroutine, object life)
