/* A file system that can be stopped: everything goes to the directory BACKING, through this process. A stopped process
   (SIGSTOP) is what a hung file server is to its clients. Usage: stopping_fs BACKING MOUNTPOINT -f */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char backing[PATH_MAX / 2];

static const char *real(const char *path, char *buffer) {
    snprintf(buffer, PATH_MAX, "%s%.2000s", backing, path);
    return buffer;
}

#define REAL(path) real(path, (char[PATH_MAX]){0})
#define RESULT(call) ((call) == -1 ? -errno : 0)

static int fs_getattr(const char *path, struct stat *found, struct fuse_file_info *info) {
    return info ? RESULT(fstat((int)info->fh, found)) : RESULT(lstat(REAL(path), found));
}

static int fs_open(const char *path, struct fuse_file_info *info) {
    int descriptor = open(REAL(path), info->flags & ~O_APPEND);
    if (descriptor == -1) return -errno;
    info->fh = (uint64_t)descriptor;
    return 0;
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info) {
    int descriptor = open(REAL(path), (info->flags & ~O_APPEND) | O_CREAT, mode);
    if (descriptor == -1) return -errno;
    info->fh = (uint64_t)descriptor;
    return 0;
}

static int fs_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path;
    ssize_t got = pread((int)info->fh, buffer, size, offset);
    return got == -1 ? -errno : (int)got;
}

static int fs_write(const char *path, const char *buffer, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path;
    ssize_t put = pwrite((int)info->fh, buffer, size, offset);
    return put == -1 ? -errno : (int)put;
}

static int fs_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    return RESULT(close((int)info->fh));
}

static int fs_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                      enum fuse_readdir_flags flags) {
    (void)offset, (void)info, (void)flags;
    DIR *directory = opendir(REAL(path));
    if (!directory) return -errno;
    for (struct dirent *entry; (entry = readdir(directory));) fill(buffer, entry->d_name, NULL, 0, 0);
    return RESULT(closedir(directory));
}

static int fs_mkdir(const char *path, mode_t mode) { return RESULT(mkdir(REAL(path), mode)); }
static int fs_unlink(const char *path) { return RESULT(unlink(REAL(path))); }

static const struct fuse_operations operations = {
    .getattr = fs_getattr, .open = fs_open, .create = fs_create, .read = fs_read, .write = fs_write,
    .release = fs_release, .mkdir = fs_mkdir, .unlink = fs_unlink, .readdir = fs_readdir,
};

int main(int count, char **arguments) {
    if (count < 3 || strlen(arguments[1]) >= sizeof backing) return 2;
    strcpy(backing, arguments[1]);
    arguments[1] = arguments[0];
    return fuse_main(count - 1, arguments + 1, &operations, NULL);
}
