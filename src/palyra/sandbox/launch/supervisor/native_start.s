# The smallest process that can wait for a launch order and become its program (x86-64 Linux).
#
# It takes one message from descriptor 140 into a buffer and then does what the message says: a list of system calls.
# It looks at nothing and decides nothing. The list is made, and tested, by start_plan.py; native_start.py holds the
# bytes that assembling this file gives, and a test assembles it again and compares.
#
#   buffer:  version, number of relocations, their offset, offset of the first record      (8 bytes each)
#   record:  system call number, six arguments, control
#   control: bits 0-7   0: failure ends it, else how many records to advance when this one fails
#            bits 8-15  how many records to pass over when it succeeds
#            bit 63     the call replaced the buffer: begin again with it, or leave when it brought nothing

        .set    ORDERS, 140
        .set    MESSAGE, 0x600000       # a msghdr that points to the buffer, laid out by native_start.py
        .set    BUFFER, 0x601000

        .text
        .globl  _start
_start:
        mov     $157, %eax              # prctl(PR_SET_DUMPABLE, 0): nobody reads or traces what waits here
        mov     $4, %edi
        xor     %esi, %esi
        syscall
        mov     $157, %eax              # prctl(PR_SET_PDEATHSIG, SIGKILL): not longer than its keeper
        mov     $1, %edi
        mov     $9, %esi
        syscall
        mov     $47, %eax               # recvmsg(ORDERS, MESSAGE, MSG_CMSG_CLOEXEC)
        mov     $ORDERS, %edi
        mov     $MESSAGE, %esi
        mov     $0x40000000, %edx
        syscall
        mov     $BUFFER, %ebx
        xor     %edi, %edi
        test    %rax, %rax
        jle     leave                   # closed instead: nothing to do

begin:  mov     8(%rbx), %rcx           # make offsets into addresses
        mov     16(%rbx), %rsi
        add     %rbx, %rsi
relocate:
        test    %rcx, %rcx
        jz      relocated
        lodsq
        add     %rbx, (%rbx,%rax)
        dec     %rcx
        jmp     relocate
relocated:
        mov     24(%rbx), %r12
        add     %rbx, %r12
        xor     %r13d, %r13d

next:   mov     (%r12), %rax
        mov     8(%r12), %rdi
        mov     16(%r12), %rsi
        mov     24(%r12), %rdx
        mov     32(%r12), %r10
        mov     40(%r12), %r8
        mov     48(%r12), %r9
        mov     56(%r12), %r14          # before the call, which may replace the buffer
        syscall
        mov     %r14, %rcx
        cmp     $-4095, %rax
        jae     failed
        test    %rcx, %rcx
        js      again
        movzbl  %ch, %ecx
        inc     %ecx
advance:
        add     %rcx, %r13
        shl     $6, %rcx
        add     %rcx, %r12
        jmp     next

again:  xor     %edi, %edi
        test    %rax, %rax
        jnz     begin
        jmp     leave                   # closed instead

failed: movzbl  %cl, %ecx
        test    %ecx, %ecx
        jnz     advance
        neg     %rax                    # write(ORDERS, {index, errno}, 16)
        push    %rax
        push    %r13
        mov     $1, %eax
        mov     $ORDERS, %edi
        mov     %rsp, %rsi
        mov     $16, %edx
        syscall
        mov     $127, %edi
leave:  mov     $231, %eax              # exit_group
        syscall
