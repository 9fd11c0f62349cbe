/* SPDX-License-Identifier: Apache-2.0 */
/* The host's interfaces; see interfaces.h. */
#include "lib/agent/route/interfaces.h"

#include "lib/base/alloc.h"
#include "lib/base/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 4,  /* VLAN over bond over ... */
    LOWER_MAX = 64, /* links looked at below one interface */
    SPEED_MAX_MBPS = 100000000,
    PATH_LEN = 512,
};

/* ---- /sys/class/net ---- */

/* Reads the first line of a small file; "" if there is none. */
static void read_line(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

int interfaces_speed(const char *root, const char *name)
{
    char path[PATH_LEN], text[32];
    int64_t speed;

    snprintf(path, sizeof(path), "%s/sys/class/net/%s/speed", root, name);
    read_line(path, text, sizeof(text));
    if (hb_parse_i64(text, 0, SPEED_MAX_MBPS, &speed, NULL) < 0)
        return 0;
    return (int)speed;
}

static int is_virtual(const char *root, const char *name, int depth);

/* Returns whether a bridge, bond or VLAN has a hardware device below it. */
static int has_real_lower(const char *root, const char *name, int depth)
{
    char path[PATH_LEN];
    struct dirent *e;
    DIR *dir;
    int seen = 0, real = 0;

    snprintf(path, sizeof(path), "%s/sys/class/net/%s", root, name);
    dir = opendir(path);
    while (dir && !real && seen < LOWER_MAX && (e = readdir(dir))) {
        if (strncmp(e->d_name, "lower_", 6) != 0)
            continue;
        seen++;
        real = !is_virtual(root, e->d_name + 6, depth + 1);
    }
    if (dir)
        closedir(dir);
    return real;
}

static int is_virtual(const char *root, const char *name, int depth)
{
    char path[PATH_LEN];

    snprintf(path, sizeof(path), "%s/sys/class/net/%s/device", root, name);
    if (access(path, F_OK) == 0)
        return 0;
    return depth >= DEPTH_MAX || !has_real_lower(root, name, depth);
}

int interfaces_virtual(const char *root, const char *name)
{
    return is_virtual(root, name, 0);
}

/* ---- The list ---- */

static int prefix_of(const struct sockaddr *mask)
{
    struct hb_netaddr m;
    int bits = 0;

    if (!mask || hb_netaddr_from_sockaddr(mask, &m) < 0)
        return 0;
    while (bits < hb_netaddr_bits(&m) &&
           (m.bytes[bits / 8] & (0x80 >> bits % 8)))
        bits++;
    return bits;
}

static unsigned flags_of(const char *root, const char *device, unsigned flags)
{
    unsigned out = 0;

    if (flags & IFF_UP)
        out |= CONTROL_INTERFACE_UP;
    if (flags & IFF_LOOPBACK)
        return out | CONTROL_INTERFACE_LOOPBACK | CONTROL_INTERFACE_VIRTUAL;
    return interfaces_virtual(root, device) ? out | CONTROL_INTERFACE_VIRTUAL
                                            : out;
}

/* Fills *out from an entry: 1, or 0 if it is no address that another host could
 * use. */
static int make_entry(const char *root, const struct ifaddrs *i,
                      struct control_interface *out)
{
    char device[IF_NAMESIZE];

    memset(out, 0, sizeof(*out));
    if (!i->ifa_addr ||
        hb_netaddr_from_sockaddr(i->ifa_addr, &out->address) < 0 ||
        hb_netaddr_is_link_local6(&out->address))
        return 0;
    /* "eth0:1" is an alias on device eth0. */
    snprintf(device, sizeof(device), "%.*s", (int)strcspn(i->ifa_name, ":"),
             i->ifa_name);
    out->name = hb_xstrdup(i->ifa_name);
    out->index = (int)if_nametoindex(device);
    out->prefix = prefix_of(i->ifa_netmask);
    out->flags = flags_of(root, device, i->ifa_flags);
    if (!(out->flags & CONTROL_INTERFACE_LOOPBACK))
        out->speed_mbps = interfaces_speed(root, device);
    return 1;
}

/* Puts i into the full list: a hardware interface replaces the last virtual
 * one; otherwise `i` is dropped. */
static void squeeze_in(struct control_interfaces *list,
                       struct control_interface *i)
{
    int at = list->count - 1;

    while (at >= 0 && (!(list->items[at].flags & CONTROL_INTERFACE_VIRTUAL) ||
                       (list->items[at].flags & CONTROL_INTERFACE_LOOPBACK)))
        at--;
    if ((i->flags & CONTROL_INTERFACE_VIRTUAL) || at < 0) {
        hb_free(i->name);
        return;
    }
    hb_free(list->items[at].name);
    list->items[at] = *i;
}

void interfaces_read(const char *root, struct control_interfaces *out)
{
    struct ifaddrs *all, *i;

    out->count = 0;
    out->items = hb_xcalloc(CONTROL_INTERFACES_MAX, sizeof(*out->items));
    if (getifaddrs(&all) < 0)
        return;
    for (i = all; i; i = i->ifa_next) {
        struct control_interface entry;

        if (!make_entry(root, i, &entry))
            continue;
        if (out->count < CONTROL_INTERFACES_MAX)
            out->items[out->count++] = entry;
        else
            squeeze_in(out, &entry);
    }
    freeifaddrs(all);
}

/* Returns the inode number of one of this process's namespaces, or 0. */
static unsigned long long namespace_of(const char *root, const char *kind)
{
    char path[PATH_LEN];
    struct stat st;

    snprintf(path, sizeof(path), "%s/proc/self/ns/%s", root, kind);
    return stat(path, &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

char *interfaces_machine(const char *root)
{
    char path[PATH_LEN], boot[64];
    unsigned long long net = namespace_of(root, "net");

    snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", root);
    read_line(path, boot, sizeof(boot));
    if (!boot[0] || !net)
        return hb_xstrdup("");
    return hb_xasprintf("%s/%llu", boot, net);
}

char *interfaces_namespaces(const char *root)
{
    unsigned long long pid = namespace_of(root, "pid");
    unsigned long long mnt = namespace_of(root, "mnt");

    if (!pid || !mnt)
        return hb_xstrdup("");
    return hb_xasprintf("%llu/%llu/%u", pid, mnt, (unsigned)geteuid());
}
