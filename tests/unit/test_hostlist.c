/* SPDX-License-Identifier: Apache-2.0 */
/* lib/hosts/hostlist.h: every dialect, and every refusal with its position. */
#include "lib/hosts/hostlist.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Formats each entry as `user@name:slots/max_slots+port`, without parts that
 * were not given, separated by blanks. */
static const char *show(const struct hostlist *l)
{
    static char out[4096];
    size_t used = 0, i;

    out[0] = '\0';
    for (i = 0; i < l->count && used < sizeof(out) - 600; i++) {
        const struct host_entry *e = &l->entries[i];
        char slots[16] = "", max[16] = "", port[16] = "";

        if (e->slots)
            snprintf(slots, sizeof(slots), ":%d", e->slots);
        if (e->max_slots)
            snprintf(max, sizeof(max), "/%d", e->max_slots);
        if (e->port)
            snprintf(port, sizeof(port), "+%d", e->port);
        used +=
            (size_t)snprintf(out + used, sizeof(out) - used, "%s%s%s%s%s%s%s",
                             i ? " " : "", e->user ? e->user : "",
                             e->user ? "@" : "", e->name, slots, max, port);
    }
    return out;
}

struct good {
    const char *text, *expected;
};

static const struct good good_arguments[] = {
    {"a", "a"},
    {"localhost:4", "localhost:4"},
    {"a,b:2", "a b:2"},
    {" a:1 ,\tb ", "a:1 b"},
    {"user@a:4", "user@a:4"},
    {"h2.example.org:65536", "h2.example.org:65536"},
    {"under_score-dash", "under_score-dash"},
    {"10.0.0.1:2,10.0.0.2:2", "10.0.0.1:2 10.0.0.2:2"},
    {"[::1]:2", "::1:2"},
    {"[fe80::1%eth0]", "fe80::1%eth0"},
    {"u@[2001:db8::1]:3,b", "u@2001:db8::1:3 b"},
    {"n[1-3]", "n1 n2 n3"},
    {"n[01-03,20]:2", "n01:2 n02:2 n03:2 n20:2"},
    {"n[8-11]", "n8 n9 n10 n11"},
    {"n[098-101]", "n098 n099 n100 n101"},
    {"n[0-11]", "n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n11"},
    {"n[98-101]", "n98 n99 n100 n101"},
    {"n[08-11]", "n08 n09 n10 n11"},
    {"n[098-100,1000-1001]", "n098 n099 n100 n1000 n1001"},
    {"n[08-10,099-100]", "n08 n09 n10 n099 n100"},
    {"n[98-100,09-10]", "n98 n99 n100 n09 n10"},
    {"n[5]x", "n5x"},
    {"[1-2]n", "1n 2n"},
    {"u@[1-2]n", "u@1n u@2n"},
    {"r[1-2]n[1-2]:4,z", "r1n1:4 r1n2:4 r2n1:4 r2n2:4 z"},
    {"n[3,1,2]", "n3 n1 n2"},
    /* repetitions add up */
    {"a,a", "a:2"},
    {"a,b,a:3", "a:4 b"},
    {"a:2,A:2", "a:4"},
    {"n[1,1]", "n1:2"},
    {"u@a,a", "u@a:2"},
    {"a,u@a", "u@a:2"},
};

/* Slurm writes n08, ..., n101 as n[08-101]. */
START_TEST(test_wider_range)
{
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(hostlist_parse("n[08-101]", &l, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(l.count, 94);
    ck_assert_str_eq(l.entries[0].name, "n08");
    ck_assert_str_eq(l.entries[2].name, "n10");
    ck_assert_str_eq(l.entries[91].name, "n99");
    ck_assert_str_eq(l.entries[93].name, "n101");
    hostlist_free(&l);
}
END_TEST

START_TEST(test_value_names_its_source)
{
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hostlist_parse_value("X_NODES", "a,b[1", &l, &err),
                     -HVD_EINVAL);
    ck_assert_str_eq(err.text, "X_NODES: column 4: '[' without ']'");
    hb_error_clear(&err);
    ck_assert_int_eq(hostlist_parse_value("X_NODES", " ", &l, &err),
                     -HVD_EINVAL);
    ck_assert_str_eq(err.text, "X_NODES: names no host");
}
END_TEST

START_TEST(test_good_arguments)
{
    const struct good *c = &good_arguments[_i];
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(hostlist_parse(c->text, &l, &err) == 0, "%s: %s", c->text,
                  err.text);
    ck_assert_str_eq(show(&l), c->expected);
    hostlist_free(&l);
    ck_assert_uint_eq(l.count, 0);
}
END_TEST

static const struct good bad_arguments[] = {
    {"", "-H: names no host"},
    {"  ", "-H: names no host"},
    {"a,,b", "-H: column 3: a host name is missing"},
    {"a,", "-H: column 3: a host name is missing"},
    {",a", "-H: column 1: a host name is missing"},
    {":4", "-H: column 1: a host name is missing"},
    {"a b", "-H: column 3: a comma is missing between two hosts"},
    {"a slots=2", "-H: column 3: a comma is missing between two hosts"},
    {"a:", "-H: column 3: slots: a number is missing"},
    {"a:,b", "-H: column 3: slots: a number is missing"},
    {"a:0", "-H: column 3: slots: 0 is out of range; give 1 to 65536"},
    {"a:-1", "-H: column 3: slots: -1 is out of range; give 1 to 65536"},
    {"a:65537", "-H: column 3: slots: 65537 is out of range; give 1 to 65536"},
    {"a:99999999999999999999", "-H: column 3: slots: 99999999999999999999 is "
                               "out of range; give 1 to 65536"},
    {"a:4x", "-H: column 4: slots: not a whole number"},
    {"a:2.5", "-H: column 4: slots: not a whole number"},
    {"a:b", "-H: column 3: slots: not a whole number"},
    {"a:2:3", "-H: column 1: an IPv6 address needs brackets, as in "
              "[fe80::1]:4"},
    {"::1", "-H: column 1: a host name is missing"},
    {"fe80::1", "-H: column 1: an IPv6 address needs brackets, as in "
                "[fe80::1]:4"},
    {"-oProxyCommand=x", "-H: column 1: a host name cannot begin with '-'"},
    {"u@-x", "-H: column 3: a host name cannot begin with '-'"},
    {"-u@x", "-H: column 1: a user name cannot begin with '-'"},
    {"@a", "-H: column 1: a user name is missing"},
    {"u@", "-H: column 3: a host name is missing"},
    {"u$@a", "-H: column 2: byte 0x24 is not allowed in a user name"},
    {"a;b", "-H: column 2: ';' is not allowed in a host name; use letters, "
            "digits, '.', '-' and '_'"},
    {"a\033[2J", "-H: column 2: byte 0x1b is not allowed in a host name"},
    {"h\xc3\xb6st", "-H: column 2: byte 0xc3 is not allowed in a host name"},
    {"a[1-2", "-H: column 2: '[' without ']'"},
    {"a[", "-H: column 2: '[' without ']'"},
    {"a]", "-H: column 2: ']' without '['"},
    {"a1-2]", "-H: column 5: ']' without '['"},
    {"a[[1]]", "-H: column 3: '[' inside a range"},
    {"a[1 -2]", "-H: column 4: a blank inside a range"},
    {"a[x]", "-H: column 3: a range holds numbers, '-' and ',' only, as in "
             "node[01-16,20]"},
    {"a[]", "-H: column 3: a number is missing in a range, as in "
            "node[01-16,20]"},
    {"a[1-]", "-H: column 5: a number is missing in a range, as in "
              "node[01-16,20]"},
    {"a[-2]", "-H: column 3: a number is missing in a range, as in "
              "node[01-16,20]"},
    {"a[1,]", "-H: column 5: a number is missing in a range, as in "
              "node[01-16,20]"},
    {"a[1-2-3]", "-H: column 6: a range element is lo-hi or one number"},
    {"a[16-01]",
     "-H: column 3: the range 16-01 is reversed; write the lower number first"},
    {"a[1-08]", "-H: column 3: both ends of a zero-padded range need as many "
                "digits, as in [01-16]"},
    {"a[08-9]", "-H: column 3: both ends of a zero-padded range need as many "
                "digits, as in [01-16]"},
    {"a[1-1234567890]", "-H: column 5: a range number has more than 9 digits"},
    {"b,a[1-70000]", "-H: column 3: more than 65536 hosts are named"},
    {"a[1-256]b[1-256]c[0-9]", "-H: column 1: more than 65536 hosts are named"},
    {"[::g]", "-H: column 1: not an IPv6 address; write it as [::1]"},
    {"[::1", "-H: column 1: '[' without ']'"},
    {"[::1]x", "-H: column 6: 'x' is not allowed in a host name; use "
               "letters, digits, '.', '-' and '_'"},
    {"[::1%]", "-H: column 1: not an IPv6 address; write it as [::1]"},
    {"[::1%e;]", "-H: column 1: not an IPv6 address; write it as [::1]"},
    {"u@a,v@a", "-H: column 5: host a was given with user u before; keep "
                "one"},
    {"a:65536,a:1", "-H: column 9: host a: its slots add up to 65537; at "
                    "most 65536 are possible"},
};

START_TEST(test_bad_arguments)
{
    const struct good *c = &bad_arguments[_i];
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hostlist_parse(c->text, &l, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, c->expected);
    ck_assert_ptr_null(l.entries);
    ck_assert_int_eq(hostlist_parse(c->text, &l, NULL), -HVD_EINVAL);
}
END_TEST

static const struct good good_files[] = {
    {"a slots=2 max_slots=4\n", "a:2/4"},
    {"a slots=2 max-slots=2", "a:2/2"},
    {"a:2\nb:3\n", "a:2 b:3"},
    {"a\na\nb\na\n", "a:3 b"},
    {"\n# all\n \t\n  a  slots=1  # tail\n#b\n", "a:1"},
    {"a#b\n", "a"},
    {"a slots = 4\tmax_slots =8\n", "a:4/8"},
    {"a port=2222 user=joe slots=1\n", "joe@a:1+2222"},
    {"joe@a:2 port=22\n", "joe@a:2+22"},
    {"a slots=2\r\nb\r\n", "a:2 b"},
    {"a\r\n# comment\r\n\r\nb:2\r", "a b:2"},
    {"\xef\xbb\xbf"
     "a:2\n",
     "a:2"},
    {"n[01-02] slots=3 max_slots=3\n", "n01:3/3 n02:3/3"},
    {"[::1] slots=2\n", "::1:2"},
    {"a slots=2 max_slots=4\na slots=2\n", "a:4/4"},
    {"a max_slots=2\na max_slots=8\n", "a:2/8"},
    {"a port=22\na\n", "a:2+22"},
};

START_TEST(test_good_files)
{
    const struct good *c = &good_files[_i];
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_msg(
        hostlist_parse_file_text("f", c->text, strlen(c->text), &l, &err) == 0,
        "%s: %s", c->text, err.text);
    ck_assert_str_eq(show(&l), c->expected);
    hostlist_free(&l);
}
END_TEST

static const struct good bad_files[] = {
    {"", "f: names no host"},
    {"# nothing\n\n", "f: names no host"},
    {"\xef\xbb\xbf", "f: names no host"},
    {"a\n\nb slot=2\n", "f:3:3: unknown key 'slot'; did you mean 'slots'?"},
    {"a binding=core\n", "f:1:3: unknown key 'binding'; known are slots, "
                         "max_slots, port and user"},
    {"a =2\n", "f:1:3: unknown key ''; known are slots, max_slots, port and "
               "user"},
    {"a slots=0\n", "f:1:9: slots: 0 is out of range; give 1 to 65536"},
    {"a slots=-2\n", "f:1:9: slots: -2 is out of range; give 1 to 65536"},
    {"a slots=\n", "f:1:9: slots: a number is missing"},
    {"a slots=two\n", "f:1:9: slots: not a whole number"},
    {"a slots=100000\n",
     "f:1:9: slots: 100000 is out of range; give 1 to 65536"},
    {"a slots=2 slots=2\n",
     "f:1:11: the number of slots is given twice for this host"},
    {"a:2 slots=2\n",
     "f:1:5: the number of slots is given twice for this host"},
    {"a max_slots=1 max-slots=1\n",
     "f:1:15: max_slots is given twice for this host"},
    {"u@a user=v\n", "f:1:5: user is given twice for this host"},
    {"a port=1 port=1\n", "f:1:10: port is given twice for this host"},
    {"a port=70000\n", "f:1:8: port: 70000 is out of range; give 1 to 65535"},
    {"a user=\n", "f:1:8: a user name is missing"},
    {"a user=-x\n", "f:1:8: a user name cannot begin with '-'"},
    {"ok\na slots=5 max_slots=4\n",
     "f:2:1: host a: 5 slots are more than max_slots=4; lower slots or raise "
     "max_slots"},
    {"a slots=2 max_slots=3\na slots=2\n",
     "f:2:1: host a: 4 slots are more than max_slots=3; lower slots or raise "
     "max_slots"},
    {"a port=1\na port=2\n",
     "f:2:1: host a was given with port 1 before; keep one"},
    {"a b\n", "f:1:3: 'b' after the host name; only key=value fields may "
              "follow, and each host needs its own line"},
    {"a,b\n", "f:1:2: ',' in a hostfile; put each host on its own line"},
    {"a 4\n", "f:1:3: '4' after the host name; only key=value fields may "
              "follow, and each host needs its own line"},
    {"a\rb\n", "f:1:2: byte 0x0d is not allowed in a host name"},
    {"  slots=2\n", "f:1:8: '=' is not allowed in a host name; use letters, "
                    "digits, '.', '-' and '_'"},
};

START_TEST(test_bad_files)
{
    const struct good *c = &bad_files[_i];
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(
        hostlist_parse_file_text("f", c->text, strlen(c->text), &l, &err),
        -HVD_EINVAL);
    ck_assert_str_eq(err.text, c->expected);
    ck_assert_ptr_null(l.entries);
}
END_TEST

START_TEST(test_nul_bytes)
{
    static const char *const texts[] = {"a\0b\n", "\0", "a \0\n", "[::\0]\n"};
    static const size_t lens[] = {4, 1, 4, 6};
    struct hostlist l = HOSTLIST_INIT;
    size_t i;

    for (i = 0; i < 4; i++) {
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_int_eq(
            hostlist_parse_file_text("f", texts[i], lens[i], &l, &err),
            -HVD_EINVAL);
        if (i < 3)
            ck_assert_ptr_nonnull(strstr(err.text, "a NUL byte"));
    }
}
END_TEST

START_TEST(test_name_length)
{
    char name[600];
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    memset(name, 'n', sizeof(name));
    name[HOSTS_NAME_MAX] = '\0';
    ck_assert_int_eq(hostlist_parse(name, &l, NULL), 0);
    ck_assert_uint_eq(strlen(l.entries[0].name), HOSTS_NAME_MAX);
    hostlist_free(&l);
    name[HOSTS_NAME_MAX] = 'n';
    name[HOSTS_NAME_MAX + 1] = '\0';
    ck_assert_int_eq(hostlist_parse(name, &l, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "-H: column 1: a host name of more than 255 characters");
    /* a range counts as the entries it expands to */
    hb_error_clear(&err);
    memcpy(name + HOSTS_NAME_MAX - 1, "[1-12]", 7);
    ck_assert_int_eq(hostlist_parse(name, &l, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text,
                     "-H: column 1: a host name of more than 255 characters");
    memset(name, 'u', 300);
    memcpy(name + 300, "@a", 3);
    ck_assert_int_eq(hostlist_parse(name, &l, NULL), -HVD_EINVAL);
}
END_TEST

START_TEST(test_as_many_hosts_as_allowed)
{
    struct hostlist l = HOSTLIST_INIT;

    ck_assert_int_eq(hostlist_parse("n[00000-65535]:2", &l, NULL), 0);
    ck_assert_uint_eq(l.count, HOSTS_COUNT_MAX);
    ck_assert_str_eq(l.entries[65535].name, "n65535");
    ck_assert_int_eq(l.entries[65535].slots, 2);
    hostlist_free(&l);
}
END_TEST

/* The example files, from which users copy. */
START_TEST(test_examples)
{
    static const struct good files[] = {
        {"hostfiles/horovod", "node1:4 node2:4 node3"},
        {"hostfiles/openmpi", "gpu1.example.org:4/8 gpu2.example.org:4/8 "
                              "alice@bastion.example.org:2+2222"},
        {"hostfiles/mpich", "a:4 b:4 192.0.2.17:2 2001:db8::17:2 bob@c:1"},
        {"hostfiles/plain", "n01:3 n02:2"},
        {"hostfiles/ranges",
         "node01:4 node02:4 node03:4 node04:4 node10:4 "
         "rack1-gpu1.example.org:8 rack1-gpu2.example.org:8 "
         "rack2-gpu1.example.org:8 rack2-gpu2.example.org:8 "
         "carol@spare7 carol@spare8"},
    };
    size_t i;

    for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct hostlist l = HOSTLIST_INIT;
        struct hb_error err = HB_ERROR_INIT;

        ck_assert_msg(hostlist_read_file(files[i].text, &l, &err) == 0, "%s",
                      err.text);
        ck_assert_str_eq(show(&l), files[i].expected);
        hostlist_free(&l);
    }
}
END_TEST

START_TEST(test_unreadable_files)
{
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(hostlist_read_file("/nonexistent/hosts", &l, &err),
                     -HVD_ENOENT);
    ck_assert_str_eq(err.text, "hostfile /nonexistent/hosts: cannot open: No "
                               "such file or directory");
    hb_error_clear(&err);
    ck_assert_int_eq(hostlist_read_file("/", &l, &err), -HVD_ESYSTEM);
    ck_assert_str_eq(err.text, "hostfile /: cannot read: Is a directory");
    hb_error_clear(&err);
    ck_assert_int_eq(hostlist_read_file("/dev/zero", &l, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "hostfile /dev/zero: longer than 16 MiB; is "
                               "it a hostfile?");
    hb_error_clear(&err);
    ck_assert_int_eq(hostlist_read_file("/dev/null", &l, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "/dev/null: names no host");
}
END_TEST

/* A pipe, as from a shell's <(...). */
START_TEST(test_pipe_as_hostfile)
{
    struct hostlist l = HOSTLIST_INIT;
    char path[64];
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(write(fds[1], "a\nb:2\n", 6), 6);
    close(fds[1]);
    snprintf(path, sizeof(path), "/dev/fd/%d", fds[0]);
    ck_assert_int_eq(hostlist_read_file(path, &l, NULL), 0);
    ck_assert_str_eq(show(&l), "a b:2");
    hostlist_free(&l);
    close(fds[0]);
}
END_TEST

static int parse_rich(void *arg)
{
    static const char text[] = "u@n[01-40] slots=2\nn01\nb user=v\nb\n";
    struct hostlist l = HOSTLIST_INIT;
    int rc;

    rc = hostlist_parse_file_text("f", text, sizeof(text) - 1, &l, arg);
    hostlist_free(&l);
    return rc;
}

static int read_example(void *arg)
{
    struct hostlist l = HOSTLIST_INIT;
    int rc = hostlist_read_file("hostfiles/ranges", &l, arg);

    hostlist_free(&l);
    return rc;
}

START_TEST(test_allocation_failures)
{
    struct hb_error err = HB_ERROR_INIT;

    unit_fail_each(parse_rich, NULL);
    unit_fail_each(read_example, NULL);
    hb_alloc_fail_after(0);
    ck_assert_int_eq(parse_rich(&err), -HVD_ENOMEM);
    hb_alloc_fail_after(-1);
    ck_assert_str_eq(err.text, "f: out of memory");
}
END_TEST

START_TEST(test_name_is_local)
{
    static const char *const local[] = {
        "localhost", "LocalHost",  "127.0.0.1", "127.255.0.9",
        "::1",       "n1.cluster", "N1",        "0:0:0:0:0:0:0:1"};
    static const char *const remote[] = {"n1.other",   "n",        "n11",
                                         "128.0.0.1",  "10.0.0.1", "fe80::1",
                                         "localhosts", "cluster",  ""};
    size_t i;

    for (i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        ck_assert_msg(hosts_name_is_local(local[i], "n1.cluster"), "%s",
                      local[i]);
    for (i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
        ck_assert_msg(!hosts_name_is_local(remote[i], "n1.cluster"), "%s",
                      remote[i]);
    ck_assert(hosts_name_is_local("n1", "n1"));
    ck_assert(!hosts_name_is_local("n1.cluster", "n1"));
    ck_assert(!hosts_name_is_local("n1", ""));
    ck_assert(!hosts_name_is_local("", ""));
    ck_assert(!hosts_name_is_local("", ".x"));
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

START_TEST(test_merge)
{
    static const char text[] = "a:2\nb\nu@c max_slots=4\nd:3\n";
    struct hostlist l = HOSTLIST_INIT;
    struct hb_error err = HB_ERROR_INIT;

    ck_assert_int_eq(
        hostlist_parse_file_text("f", text, sizeof(text) - 1, &l, &err), 0);
    ck_assert_int_eq(hostlist_merge(&l, 0, 2, &err), 0);
    ck_assert_uint_eq(l.count, 3);
    ck_assert_str_eq(l.entries[0].name, "a");
    ck_assert_int_eq(l.entries[0].slots, 3);
    ck_assert_int_eq(l.entries[0].max_slots, 4);
    ck_assert_ptr_null(l.entries[0].user);
    ck_assert_str_eq(l.entries[2].name, "d");
    ck_assert_int_eq(hostlist_merge(&l, 0, 2, &err), -HVD_EINVAL);
    ck_assert_str_eq(err.text, "a and d are one host: its slots add up to 6; "
                               "at most 4 are possible");
    ck_assert_uint_eq(l.count, 3);
    ck_assert_int_eq(hostlist_merge(&l, 1, 2, NULL), 0);
    ck_assert_uint_eq(l.count, 2);
    ck_assert_int_eq(l.entries[1].slots, 4);
    hostlist_free(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hostlist");
    TCase *c = tcase_create("hostlist");

    tcase_add_loop_test(c, test_good_arguments, 0, COUNT(good_arguments));
    tcase_add_test(c, test_wider_range);
    tcase_add_test(c, test_value_names_its_source);
    tcase_add_loop_test(c, test_bad_arguments, 0, COUNT(bad_arguments));
    tcase_add_loop_test(c, test_good_files, 0, COUNT(good_files));
    tcase_add_loop_test(c, test_bad_files, 0, COUNT(bad_files));
    tcase_add_test(c, test_nul_bytes);
    tcase_add_test(c, test_name_length);
    tcase_add_test(c, test_as_many_hosts_as_allowed);
    tcase_add_test(c, test_examples);
    tcase_add_test(c, test_unreadable_files);
    tcase_add_test(c, test_pipe_as_hostfile);
    tcase_add_test(c, test_allocation_failures);
    tcase_add_test(c, test_name_is_local);
    tcase_add_test(c, test_merge);
    suite_add_tcase(s, c);
    return unit_run(s);
}
