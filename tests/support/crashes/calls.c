/* Counts the system calls by which a process changes what is below a folder, notes them in a journal, and has one of them fail.
 *
 * Loaded by LD_PRELOAD; nothing happens before `calls_arm`. What it sees are the calls through libc's own names, which is how Python, Arrow
 * and delta-rs make them: a journal that is played must give the folder as it is (tests/support/crashes/calls.py looks).
 *
 * A line of the journal: number, name, inode, where it began to write, size, path, second path; a tab between them.
 * Before a file loses its last name it gets another one in the grave, by its inode: a power cut may bring it back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, EIO_ONCE, FULL, SHORT, TORN, KILL_BEFORE, KILL_AFTER };
static const char *const FAULTS[] = {"none", "EIO", "ENOSPC", "short", "torn", "before", "after", NULL};

static char top[PATH_MAX], grave[PATH_MAX];
static int journal = -1;
static long which, n_calls;
static enum fault fault;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held through a call: the journal has the calls as they were made */

/* The real function of a name, found once. */
#define REAL(result, name, ...)                                                                                                        \
    static result (*real_##name)(__VA_ARGS__);                                                                                         \
    static void find_##name(void) {                                                                                                    \
        if (!real_##name) real_##name = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);                                               \
    }

REAL(int, openat, int, const char *, int, ...)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, sendfile, int, int, off_t *, size_t)
REAL(ssize_t, copy_file_range, int, off_t *, int, off_t *, size_t, unsigned)
REAL(int, renameat2, int, const char *, int, const char *, unsigned)
REAL(int, linkat, int, const char *, int, const char *, int)
REAL(int, unlinkat, int, const char *, int)
REAL(int, mkdirat, int, const char *, mode_t)
REAL(int, ftruncate, int, off_t)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(void, sync, void)

/* Begin to count the calls below a folder.
 *
 * The call of number `at`, from 0, meets the fault; of a full disk all later ones that need room too. Returns 0, or -1 for what it does not know.
 */
int calls_arm(const char *folder, const char *graves, const char *journal_file, long at, const char *name) {
    find_openat();
    int known = 0;
    while (FAULTS[known] && strcmp(FAULTS[known], name)) known++;
    if (!FAULTS[known] || strlen(folder) >= sizeof top || strlen(graves) >= sizeof grave) return -1;
    journal = real_openat(AT_FDCWD, journal_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    strcpy(top, folder);
    strcpy(grave, graves);
    fault = known;
    which = at;
    n_calls = 0;
    return journal < 0 ? -1 : 0;
}

/* Where a path leads, from a folder's descriptor or the working directory. */
static void absolute(char *into, int folder, const char *path) {
    char base[PATH_MAX], from[64];
    if (path[0] == '/') {
        snprintf(into, PATH_MAX, "%s", path);
        return;
    }
    if (folder == AT_FDCWD) strcpy(from, "/proc/self/cwd");
    else snprintf(from, sizeof from, "/proc/self/fd/%d", folder);
    ssize_t n = readlink(from, base, sizeof base - 1);
    base[n < 0 ? 0 : n] = 0;
    if (path[0] && strcmp(path, ".")) snprintf(into, PATH_MAX, "%.2000s/%.2000s", base, path);
    else snprintf(into, PATH_MAX, "%s", base);
}

static void path_of(char *into, int file) { absolute(into, file, ""); }

static int is_below(const char *path) {
    size_t n = strlen(top);
    return journal >= 0 && !strncmp(path, top, n) && (path[n] == '/' || !path[n]);
}

/* What a call that is made is, and what becomes of it. */
struct call {
    const char *name;
    char path[PATH_MAX], second[PATH_MAX];
    off_t begin;
    int fails, is_cut; /* an error of the system, or half of what is to be written */
};

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

static void note(const struct call *call, ino_t inode, off_t size) {
    char line[2 * PATH_MAX + 200];
    int n = snprintf(line, sizeof line, "%ld\t%s\t%llu\t%lld\t%lld\t%s\t%s\n", n_calls - 1, call->name, (unsigned long long)inode,
                     (long long)call->begin, (long long)size, call->path, call->second);
    syscall(SYS_write, journal, line, (size_t)n);
}

/* Count a call, and decide what becomes of it. `takes_room`: it fails on a full disk; `writes`: it may be cut short. */
static void begin(struct call *call, int takes_room, int writes) {
    long number = n_calls++;
    int is_it = number == which;
    call->fails = is_it && fault == EIO_ONCE ? EIO : fault == FULL && number >= which && takes_room ? ENOSPC : 0;
    call->is_cut = is_it && writes && (fault == SHORT || fault == TORN);
    if (is_it && (fault == KILL_BEFORE || (fault == TORN && !writes))) die();
}

static void end(const struct call *call, ino_t inode, off_t size, int is_done) {
    if (is_done) note(call, inode, size);
    if (n_calls - 1 == which && (fault == KILL_AFTER || fault == TORN)) die();
}

static int failed(const struct call *call) {
    errno = call->fails;
    return -1;
}

/* Keep a file that is about to lose a name. */
static void bury(const char *path) {
    struct stat file;
    char to[PATH_MAX];
    find_linkat();
    if (lstat(path, &file) || !S_ISREG(file.st_mode)) return;
    snprintf(to, sizeof to, "%.4000s/%llu", grave, (unsigned long long)file.st_ino);
    real_linkat(AT_FDCWD, path, AT_FDCWD, to, 0);
}

static int open_counted(int folder, const char *path, int flags, mode_t mode) {
    struct call call = {.name = "open"};
    struct stat file;
    find_openat();
    if (!(flags & (O_CREAT | O_TRUNC)) || journal < 0) return real_openat(folder, path, flags, mode);
    absolute(call.path, folder, path);
    if (!is_below(call.path)) return real_openat(folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = lstat(call.path, &file) != 0;
    begin(&call, is_new, 0);
    int opened = call.fails ? failed(&call) : real_openat(folder, path, flags, mode);
    int error = errno;
    if (opened >= 0) {
        fstat(opened, &file);
        call.name = is_new ? "create" : flags & O_TRUNC ? "truncate" : "open";
    }
    end(&call, opened < 0 ? 0 : file.st_ino, opened < 0 ? 0 : file.st_size, opened >= 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return opened;
}

#define MODE                                                                                                                           \
    mode_t mode = 0;                                                                                                                   \
    if (flags & O_CREAT) {                                                                                                             \
        va_list more;                                                                                                                  \
        va_start(more, flags);                                                                                                         \
        mode = va_arg(more, mode_t);                                                                                                   \
        va_end(more);                                                                                                                  \
    }
int open(const char *path, int flags, ...) { MODE return open_counted(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_counted(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE return open_counted(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE return open_counted(folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return open_counted(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_counted(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Begin a call of a file that is open; returns whether it is counted, and then holds the lock. */
static int begin_of_file(struct call *call, int file, int takes_room, int writes) {
    struct stat status;
    if (journal < 0 || file == journal || fstat(file, &status) || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return 0;
    path_of(call->path, file);
    if (!is_below(call->path)) return 0;
    pthread_mutex_lock(&lock);
    call->begin = writes && fcntl(file, F_GETFL) & O_APPEND ? status.st_size : lseek(file, 0, SEEK_CUR);
    begin(call, takes_room, writes);
    return 1;
}

static void end_of_file(const struct call *call, int file, int is_done) {
    struct stat status;
    int error = errno;
    fstat(file, &status);
    end(call, status.st_ino, status.st_size, is_done);
    pthread_mutex_unlock(&lock);
    errno = error;
}

static size_t cut(const struct call *call, size_t n) { return call->is_cut ? n / 2 : n; }

ssize_t write(int file, const void *bytes, size_t n) {
    struct call call = {.name = "write"};
    find_write();
    if (!begin_of_file(&call, file, 1, 1)) return real_write(file, bytes, n);
    ssize_t done = call.fails ? failed(&call) : real_write(file, bytes, cut(&call, n));
    end_of_file(&call, file, done >= 0);
    return done;
}

ssize_t pwrite(int file, const void *bytes, size_t n, off_t at) {
    struct call call = {.name = "write"};
    find_pwrite();
    if (!begin_of_file(&call, file, 1, 1)) return real_pwrite(file, bytes, n, at);
    call.begin = at;
    ssize_t done = call.fails ? failed(&call) : real_pwrite(file, bytes, cut(&call, n), at);
    end_of_file(&call, file, done >= 0);
    return done;
}
ssize_t pwrite64(int file, const void *bytes, size_t n, off64_t at) { return pwrite(file, bytes, n, at); }

ssize_t writev(int file, const struct iovec *parts, int n_parts) {
    struct call call = {.name = "write"};
    find_writev();
    if (!begin_of_file(&call, file, 1, 1)) return real_writev(file, parts, n_parts);
    struct iovec first = {n_parts ? parts[0].iov_base : NULL, n_parts ? parts[0].iov_len / 2 : 0};
    ssize_t done = call.fails ? failed(&call) : call.is_cut ? real_writev(file, &first, 1) : real_writev(file, parts, n_parts);
    end_of_file(&call, file, done >= 0);
    return done;
}

ssize_t sendfile(int file, int from, off_t *at, size_t n) {
    struct call call = {.name = "write"};
    find_sendfile();
    if (!begin_of_file(&call, file, 1, 1)) return real_sendfile(file, from, at, n);
    ssize_t done = call.fails ? failed(&call) : real_sendfile(file, from, at, cut(&call, n));
    end_of_file(&call, file, done >= 0);
    return done;
}
ssize_t sendfile64(int file, int from, off64_t *at, size_t n) { return sendfile(file, from, (off_t *)at, n); }

ssize_t copy_file_range(int from, off64_t *from_at, int file, off64_t *at, size_t n, unsigned flags) {
    struct call call = {.name = "write"};
    find_copy_file_range();
    if (!begin_of_file(&call, file, 1, 1)) return real_copy_file_range(from, from_at, file, at, n, flags);
    if (at) call.begin = *at;
    ssize_t done = call.fails ? failed(&call) : real_copy_file_range(from, from_at, file, at, cut(&call, n), flags);
    end_of_file(&call, file, done >= 0);
    return done;
}

int ftruncate(int file, off_t size) {
    struct call call = {.name = "truncate"};
    find_ftruncate();
    if (!begin_of_file(&call, file, 1, 0)) return real_ftruncate(file, size);
    int done = call.fails ? failed(&call) : real_ftruncate(file, size);
    end_of_file(&call, file, !done);
    return done;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int fsync(int file) {
    struct call call = {.name = "fsync"};
    find_fsync();
    if (!begin_of_file(&call, file, 1, 0)) return real_fsync(file);
    int done = call.fails ? failed(&call) : real_fsync(file);
    end_of_file(&call, file, !done);
    return done;
}

int fdatasync(int file) {
    struct call call = {.name = "fsync"};
    find_fdatasync();
    if (!begin_of_file(&call, file, 1, 0)) return real_fdatasync(file);
    int done = call.fails ? failed(&call) : real_fdatasync(file);
    end_of_file(&call, file, !done);
    return done;
}

void sync(void) {
    struct call call = {.name = "sync"};
    find_sync();
    if (journal < 0) {
        real_sync();
        return;
    }
    strcpy(call.path, top);
    pthread_mutex_lock(&lock);
    begin(&call, 0, 0);
    if (!call.fails) real_sync();
    end(&call, 0, 0, !call.fails);
    pthread_mutex_unlock(&lock);
}

static ino_t inode_of(const char *path) {
    struct stat file;
    return lstat(path, &file) ? 0 : file.st_ino;
}

int renameat2(int folder, const char *path, int to_folder, const char *to, unsigned flags) {
    struct call call = {.name = "rename"};
    find_renameat2();
    absolute(call.path, folder, path);
    absolute(call.second, to_folder, to);
    if (!is_below(call.path) && !is_below(call.second)) return real_renameat2(folder, path, to_folder, to, flags);
    pthread_mutex_lock(&lock);
    ino_t inode = inode_of(call.path);
    begin(&call, 0, 0);
    if (!call.fails) bury(call.second);
    int done = call.fails ? failed(&call) : real_renameat2(folder, path, to_folder, to, flags);
    int error = errno;
    end(&call, inode, 0, !done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int rename(const char *path, const char *to) { return renameat2(AT_FDCWD, path, AT_FDCWD, to, 0); }
int renameat(int folder, const char *path, int to_folder, const char *to) { return renameat2(folder, path, to_folder, to, 0); }

int linkat(int folder, const char *path, int to_folder, const char *to, int flags) {
    struct call call = {.name = "link"};
    find_linkat();
    absolute(call.path, folder, path);
    absolute(call.second, to_folder, to);
    if (!is_below(call.second)) return real_linkat(folder, path, to_folder, to, flags);
    pthread_mutex_lock(&lock);
    begin(&call, 1, 0);
    int done = call.fails ? failed(&call) : real_linkat(folder, path, to_folder, to, flags);
    int error = errno;
    end(&call, inode_of(call.second), 0, !done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int link(const char *path, const char *to) { return linkat(AT_FDCWD, path, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char *path, int flags) {
    struct call call = {.name = flags & AT_REMOVEDIR ? "rmdir" : "unlink"};
    find_unlinkat();
    absolute(call.path, folder, path);
    if (!is_below(call.path)) return real_unlinkat(folder, path, flags);
    pthread_mutex_lock(&lock);
    ino_t inode = inode_of(call.path);
    begin(&call, 0, 0);
    if (!call.fails) bury(call.path);
    int done = call.fails ? failed(&call) : real_unlinkat(folder, path, flags);
    int error = errno;
    end(&call, inode, 0, !done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat file;
    int is_folder = !lstat(path, &file) && S_ISDIR(file.st_mode);
    return unlinkat(AT_FDCWD, path, is_folder ? AT_REMOVEDIR : 0);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    struct call call = {.name = "mkdir"};
    find_mkdirat();
    absolute(call.path, folder, path);
    if (!is_below(call.path)) return real_mkdirat(folder, path, mode);
    pthread_mutex_lock(&lock);
    begin(&call, 1, 0);
    int done = call.fails ? failed(&call) : real_mkdirat(folder, path, mode);
    int error = errno;
    end(&call, inode_of(call.path), 0, !done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
