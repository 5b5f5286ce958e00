# What a keeper does from the start of its program to the end of its tree, if nothing else happens (x86-64 Linux).
#
# A function, called by keeper_main with the address of a state that native_watch.py lays out. It waits for the death of
# a child, collects, and says that all is done when the program and everything it left behind has ended by itself. It
# returns 0 then, and 1 whenever there is anything to decide: a word of the daemon, the end of the zygote, a descendant
# that goes on. What it collected is in the state. native_watch.py holds the bytes that assembling this file gives, and
# a test assembles it again and compares.

        .set    DAEMON_EVENTS, 6        # of the three descriptors that are polled: daemon, zygote, signals of children
        .set    ZYGOTE_EVENTS, 14
        .set    PROGRAM, 24             # its number
        .set    ROUNDS, 32              # how many more times to wait for what it left behind
        .set    ENDED, 40
        .set    CHILDLESS, 48
        .set    REST, 56                # how long each time, a timespec
        .set    SIGNALS, 72             # the set that is SIGCHLD
        .set    MESSAGE, 80             # to the daemon: tag, status, usage, orphans, survivors
        .set    STATUS, 88
        .set    USAGE, 96
        .set    MESSAGE_BYTES, 176
        .set    ANY_STATUS, 256         # of whatever was collected
        .set    ANY_USAGE, 264
        .set    USAGE_WORDS, 18
        .set    AFTER_YOU, 408          # how long to stay out of the way of who was told, a timespec

        .text
        .globl  watch
watch:  push    %rbx
        mov     %rdi, %rbx
        mov     $7, %eax                # poll(state, 3, -1)
        mov     $3, %esi
        mov     $-1, %edx
        syscall
        test    %rax, %rax
        jle     decide
        cmpw    $0, DAEMON_EVENTS(%rbx)
        jne     decide
        cmpw    $0, ZYGOTE_EVENTS(%rbx)
        jne     decide

collect:
        mov     $61, %eax               # wait4(-1, ANY_STATUS, WNOHANG, ANY_USAGE)
        mov     $-1, %rdi
        lea     ANY_STATUS(%rbx), %rsi
        mov     $1, %edx
        lea     ANY_USAGE(%rbx), %r10
        syscall
        test    %rax, %rax
        js      childless
        jz      collected
        cmp     PROGRAM(%rbx), %rax
        jne     collect
        movslq  ANY_STATUS(%rbx), %rax
        mov     %rax, STATUS(%rbx)
        lea     ANY_USAGE(%rbx), %rsi
        lea     USAGE(%rbx), %rdi
        mov     $USAGE_WORDS, %ecx
        rep     movsq
        movq    $1, ENDED(%rbx)
        jmp     collect

childless:
        cmp     $-10, %rax              # ECHILD; anything else is for somebody else to understand
        jne     decide
        movq    $1, CHILDLESS(%rbx)
        cmpq    $0, ENDED(%rbx)
        je      decide
        mov     $44, %eax               # sendto(daemon, MESSAGE, its length, MSG_NOSIGNAL, 0, 0)
        mov     (%rbx), %edi
        lea     MESSAGE(%rbx), %rsi
        mov     $MESSAGE_BYTES, %edx
        mov     $0x4000, %r10d
        xor     %r8d, %r8d
        xor     %r9d, %r9d
        syscall
        mov     $35, %eax               # nanosleep(AFTER_YOU, 0)
        lea     AFTER_YOU(%rbx), %rdi
        xor     %esi, %esi
        syscall
        xor     %eax, %eax
        pop     %rbx
        ret

collected:
        cmpq    $0, ENDED(%rbx)
        je      decide
        decq    ROUNDS(%rbx)
        js      decide
        mov     $128, %eax              # rt_sigtimedwait(SIGNALS, 0, REST, 8)
        lea     SIGNALS(%rbx), %rdi
        xor     %esi, %esi
        lea     REST(%rbx), %rdx
        mov     $8, %r10d
        syscall
        test    %rax, %rax
        jns     collect

decide: mov     $1, %eax
        pop     %rbx
        ret
