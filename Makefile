# SPDX-License-Identifier: Apache-2.0
#
# One makefile for everything.  The targets that people use:
#
#   make              programs, libraries and examples, under build/
#   make quickstart   install what the build needs, build, train on 2 ranks
#   make check        install what the tests need too, then run every test
#   make install      DESTDIR= PREFIX=/usr/local
#   make help         the rest
#
# Sources are listed per folder, below.  BUILD=dir builds elsewhere,
# WERROR=1 makes warnings errors, SAN=address|thread adds sanitizers,
# STATIC=1 makes an hvdrun that runs where no library is.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0
SOVERSION := 0

CC ?= cc
AR ?= ar
OPT ?= -O2
PKG_CONFIG ?= pkg-config

# ---- Sources ----------------------------------------------------------

BASE_SRC := $(addprefix lib/base/, \
	alloc.c buf.c clock.c env.c error.c linkage.c log.c netaddr.c strv.c \
	text.c trace_file.c)
HOSTS_SRC := $(addprefix lib/hosts/, \
	hostfold.c hostlist.c hostmerge.c hostparse.c plan.c)
PROTOCOL_SRC := $(addprefix lib/protocol/, \
	agent_hash.c control.c control_bytes.c control_json.c control_route.c \
	frame.c query.c rendezvous.c segment.c segment_fd.c worker.c worker_rdv.c \
	control_stall.c status.c worker_stats.c)
RENDEZVOUS_SRC := $(addprefix lib/rendezvous/, fence.c store.c)
TRANSPORT_SRC := $(addprefix lib/transport/, \
	agent_image.c bootstrap.c child.c command.c local.c localname.c \
	openssh.c remote.c remote_config.c remote_host.c remote_open.c \
	remote_proxy.c remote_stream.c rsh.c transport.c \
	aes.c bcrypt_pbkdf.c known_hosts.c passphrase.c sha1.c ssh_agent.c \
	ssh_config.c ssh_expand.c ssh_key.c ssh_pem.c)
SSH2_SRC := $(addprefix lib/transport/, \
	ssh2.c ssh2_auth.c ssh2_connect.c ssh2_hostkey.c ssh2_keys.c \
	ssh2_session.c ssh2_task.c)
AGENT_SRC := $(addprefix lib/agent/, \
	capture.c jobend.c jobscan.c libfind.c place.c progcheck.c query.c \
	query_doctor.c query_jobs.c \
	interfaces.c route.c route_auth.c route_dial.c route_measure.c \
	route_orders.c route_serve.c route_try.c \
	agent.c beat.c cause.c cgroup.c cpus.c death.c endpoint.c \
	endpoint_rdv.c \
	epoch.c gpu.c guardian.c host_env.c launch.c link.c port.c program.c \
	pump.c rendezvous.c signals.c spawn.c state.c tree.c \
	stack.c stall.c trace.c)
JOB_SRC := $(addprefix lib/job/, \
	survey.c \
	input.c job.c job_beat.c job_end.c job_frames.c job_host.c job_io.c \
	job_signal.c job_wait.c lines.c offset.c outdir.c output.c progress.c \
	report.c \
	job_routes.c rendezvous.c route_choice.c route_filter.c routes.c \
	routes_result.c \
	state.c stdio.c worker_env.c \
	job_stall.c stall.c stall_report.c \
	job_trace.c stats_text.c timeline.c)
HVDRUN_SRC := $(addprefix cmd/hvdrun/, \
	doctor.c doctor_checks.c doctor_net.c findings.c jobs.c jobs_text.c \
	table.c tool.c \
	check_build.c config.c config_json.c config_tree.c config_yaml.c \
	dryrun.c env_file.c main.c mpi.c mpi_command.c mpi_find.c mpi_mpich.c \
	mpi_openmpi.c probe.c quote.c reach.c run.c options.c options_apply.c \
	options_help.c options_table.c readfile.c)
HVD_AGENT_SRC := $(addprefix cmd/hvd-agent/, main.c)
HVD_BENCH_SRC := $(addprefix cmd/hvd-bench/, \
	main.c calls.c cuda.c data.c measure.c memory.c options.c raw.c \
	resnet50.c work.c world.c)
RUNTIME_SRC := $(addprefix runtime/core/, adasum.c agent_client.c autotune.c \
		call.c call_arguments.c collective.c connect.c context.c controller.c engine.c engine_alone.c engine_launch.c execute.c gpu.c hosts.c \
		join.c knobs.c launcher.c memory.c message.c mpi.c mpi_set.c plugin.c segment.c negotiate.c neutral.c plan.c record.c request.c run.c set.c topology.c tuner.c \
		types.c) \
	$(addprefix runtime/plane/, op.c parts.c cast.c self.c shm.c shm_allreduce.c \
		shm_gather.c shm_alltoall.c shm_scatter.c shm_wait.c shm_domains.c \
		arena.c reduce.c reduce_portable.c) \
	$(addprefix runtime/plane/, hier.c hier_agree.c hier_alltoall.c \
		hier_gather.c hier_lanes.c hier_rows.c hier_watch.c map.c tcp.c tcp_auth.c \
		tcp_exchange.c tcp_head.c tcp_measure.c tcp_model.c \
		tcp_setup.c tcp_steps.c tcp_stream.c)
RUNTIME_SRC += $(addprefix runtime/trace/, timeline.c timeline_lanes.c \
		timeline_text.c stats.c stall.c trace.c)
# Reduction kernels for wider instruction sets; chosen at run time.
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
RUNTIME_SRC += $(addprefix runtime/plane/, reduce_avx2.c reduce_avx512.c)
endif
MPI_PLUGIN_SRC := $(addprefix runtime/plugins/mpi/, \
	alltoall.c call.c error.c gather.c header.c leave.c plane.c ranks.c \
	reduce.c rounds.c start.c types.c wait.c world.c)
# It has its own copy of these.
MPI_PLUGIN_OWN := runtime/core/types.c $(filter runtime/plane/op.c \
	runtime/plane/parts.c runtime/plane/cast.c runtime/plane/self.c \
	runtime/plane/reduce%,$(RUNTIME_SRC))
# Beside runtime/plugins/nccl/kernels.cu, which nvcc compiles.
NCCL_PLUGIN_SRC := $(addprefix runtime/plugins/nccl/, \
	bring.c collect.c comm.c cuda.c fail.c fuse.c launch.c nccl.c plane.c \
	plugin.c reduce.c staged.c sub.c timing.c watch.c)
NCCL_PLUGIN_OWN := $(MPI_PLUGIN_OWN)

EXAMPLES := train_digits anomaly_autoencoder
EXAMPLE_DATA := $(addprefix $(BUILD)/examples/data/, \
	digits.csv breast_cancer.csv)

UNIT_TESTS := input job job_hosts job_state lines offset outdir output \
	progress report worker_env \
	transport_local localname agent_image bootstrap command openssh remote rsh \
	agent agent_beat agent_launch agent_state cause cgroup \
	cpus endpoint epoch gpu host_env port program pump spawn tree \
	options options_table config env_file check_build dryrun mpi_command probe \
	again allreduce arena collectives engine launch negotiate order join process_sets failure hosts hosts_failure init map reduce shm shm_order shm_domains bench \
	tcp tcp_auth tcp_collectives tcp_model tcp_setup worker_rdv store rendezvous \
	agent_route control_route interfaces netaddr route route_auth route_choice \
	route_filter routes routes_net \
	adasum cast neutral \
	alloc clock log text buf env error strv hostlist plan \
	frame control control_launch worker segment hostfold findings jobs survey place query \
	doctor
UNIT_TESTS += timeline stats worker_stats job_timeline
UNIT_TESTS += hier hosts_sets subset
UNIT_TESTS += autotune tuner
UNIT_TESTS += stall control_stall agent_stall trace_stall
UNIT_TESTS += ssh_config known_hosts ssh_key ssh_agent
SYSTEM_PROGS := actor coll evil_agent mpi_fault mpi_plane poke prop pty rdv stall
FUZZERS := ssh_config known_hosts ssh_key hostfile frame env config env_file query bootstrap rendezvous tcp

comma := ,

# ---- Flags ------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -Wformat=2 -Wnull-dereference
ifeq ($(WERROR),1)
WARN += -Werror
endif
HARDEN := -fstack-protector-strong
ifeq ($(SAN),)
HARDEN += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
AGENT_LINK := -static
else
SANFLAGS := -fsanitize=$(SAN) -fno-omit-frame-pointer
ifeq ($(SAN),address)
SANFLAGS += -fsanitize=undefined
endif
ifeq ($(SAN),fuzzer)
SANFLAGS := -fsanitize=fuzzer-no-link,address,undefined
endif
ifneq ($(SAN),thread)
SANFLAGS += -fno-sanitize-recover=undefined
endif
endif

DEPS_CFLAGS := $(shell $(PKG_CONFIG) --cflags libuv jansson yaml-0.1 \
	2>/dev/null)
UV_LIBS := $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null)
JANSSON_LIBS := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null)
YAML_LIBS := $(shell $(PKG_CONFIG) --libs yaml-0.1 2>/dev/null)
# Linked statically, so that libhvd and the agent need no library.
SODIUM_A := $(addsuffix /libsodium.a,$(shell $(PKG_CONFIG) \
	--variable=libdir libsodium 2>/dev/null))
SSH2_LIBS := $(shell $(PKG_CONFIG) --libs libssh2 2>/dev/null)
# A plug-in is built where its library is, unless told: WITH_X=auto|yes|no.
WITH_SSH2 ?= auto
ifneq ($(or $(filter yes,$(WITH_SSH2)),$(and $(filter auto,$(WITH_SSH2)),\
		$(SSH2_LIBS))),)
PLUGINS += $(BUILD)/lib/hvd/transport-ssh2.so
SSH2_TESTS := ssh2 ssh2_auth ssh2_faults ssh2_hosts
UNIT_TESTS += $(SSH2_TESTS)
endif
# Or WITH_MPI=/path, for /path/bin/mpicc; or MPICC names it.
WITH_MPI ?= auto
MPICC ?= $(if $(filter auto yes,$(WITH_MPI)),mpicc,$(WITH_MPI)/bin/mpicc)
ifneq ($(WITH_MPI),no)
MPI_SHOWN := $(shell $(MPICC) -show 2>/dev/null)
endif
mpi_cflags = $(patsubst -I%,-isystem %,$(filter -I%,$(1)))
mpi_libs = $(filter -L% -l% -Wl$(comma)-rpath%,$(1))
ifneq ($(MPI_SHOWN),)
PLUGINS += $(BUILD)/lib/hvd/libhvd-mpi.so
endif
# Or WITH_NCCL=/path, where CUDA's bin/nvcc and include/cuda.h are; NCCL_HOME
# if NCCL is elsewhere.
WITH_NCCL ?= auto
CUDA_HOME ?= /usr/local/cuda
NCCL_HOME ?= /usr
CUDA := $(if $(filter auto yes no,$(WITH_NCCL)),$(CUDA_HOME),$(WITH_NCCL))
NVCC := $(CUDA)/bin/nvcc
ifneq ($(WITH_NCCL),no)
NCCL_INCLUDE := $(patsubst %/nccl.h,%,$(firstword $(wildcard \
	$(CUDA)/include/nccl.h $(NCCL_HOME)/include/nccl.h)))
ifneq ($(and $(wildcard $(NVCC)),$(wildcard $(CUDA)/include/cuda.h)),)
WITH_NCCL_NOW := $(NCCL_INCLUDE)
endif
endif
ifneq ($(WITH_NCCL_NOW),)
PLUGINS += $(BUILD)/lib/hvd/libhvd-nccl.so
ifeq ($(SAN),)
GPU_EXAMPLES := train_digits_cuda
endif
NCCL_TESTS := nccl_kernels nccl_open
NCCL_PLANE_TESTS := nccl_plane nccl_failures
UNIT_TESTS += $(NCCL_TESTS) $(NCCL_PLANE_TESTS)
SYSTEM_PROGS += nccl nccl_double
NCCL_CFLAGS := -isystem $(CUDA)/include $(if \
	$(filter-out $(CUDA)/include,$(NCCL_INCLUDE)),-isystem $(NCCL_INCLUDE))
NCCL_LIBDIR := $(firstword $(wildcard $(addprefix \
	$(NCCL_INCLUDE:%/include=%)/,lib64 lib)))
# "13.0" of 13000.
CUDA_TEXT := $(shell sed -n 's/^.define CUDA_VERSION  *\([0-9]*\)0\([0-9]\)0$$/\1.\2/p' \
	$(CUDA)/include/cuda.h)
# Code for each device of 7.0 to 9.0 that this nvcc knows, and text of the last
# for those to come.
GPU_ARCHS := $(patsubst compute_%,%,$(sort $(filter $(addprefix compute_,70 72 \
	75 80 86 87 88 89 90),$(shell $(NVCC) --list-gpu-arch))))
GENCODE := $(foreach arch,$(GPU_ARCHS), \
	-gencode arch=compute_$(arch)$(comma)code=sm_$(arch)) \
	-gencode arch=compute_$(lastword $(GPU_ARCHS))$(comma)code=compute_$(lastword \
	$(GPU_ARCHS))
endif
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)

ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -iquote lib/base \
	-DHVD_VERSION='"$(VERSION)"' \
	$(OPT) -g -fPIC -fvisibility=hidden -pthread \
	$(WARN) $(HARDEN) $(SANFLAGS) $(DEPS_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pthread -Wl,-z,relro -Wl,-z,now -Wl,--as-needed \
	$(SANFLAGS) $(LDFLAGS)

# ---- Programs and libraries -------------------------------------------

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

LIBS := base hosts protocol rendezvous transport agent job runtime
BIN := $(BUILD)/bin
LIB := $(BUILD)/lib
SO := $(LIB)/libhvd.so.$(SOVERSION)

.PHONY: all
all: $(BIN)/hvdrun $(BIN)/hvd-agent $(BIN)/hvd-bench $(LIB)/libhvd.so \
	$(PLUGINS) \
	$(EXAMPLES:%=$(BUILD)/examples/%) $(GPU_EXAMPLES:%=$(BUILD)/examples/%)

ifeq ($(and $(UV_LIBS),$(JANSSON_LIBS),$(YAML_LIBS),$(SODIUM_A)),)
$(BUILD)/flags: packages-missing
endif
ifeq ($(and $(filter-out auto no,$(WITH_MPI)),$(if $(MPI_SHOWN),,1)),1)
$(BUILD)/flags: mpi-missing
endif
ifeq ($(and $(filter-out auto no,$(WITH_NCCL)),$(if $(WITH_NCCL_NOW),,1)),1)
$(BUILD)/flags: nccl-missing
endif
.PHONY: packages-missing mpi-missing nccl-missing
nccl-missing:
	@echo 'there is no bin/nvcc and include/cuda.h in $(CUDA), or no nccl.h' \
		'there or in $(NCCL_HOME)/include: WITH_NCCL=no builds without' \
		'NCCL' >&2; exit 1
mpi-missing:
	@echo 'there is no $(MPICC): install one, name another with MPICC, or' \
		'build without by WITH_MPI=no' >&2; exit 1
packages-missing:
	@echo 'libuv, jansson, libyaml or libsodium is not installed: try' \
		'"make quickstart" or "sh .ci/packages build"' >&2; exit 1

# Changing flags rebuilds: the stamp is rewritten only when they differ.  A
# plug-in of the flags before would still be found and loaded.
FLAGS_NOW := $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(MPI_SHOWN) \
	$(CUDA_TEXT) $(NCCL_CFLAGS) $(GENCODE) $(notdir $(PLUGINS))
NO_MPI_NOTE := $(if $(filter no,$(WITH_MPI))$(MPI_SHOWN),,there is no \
	$(MPICC): building without libhvd-mpi.so)
NO_NCCL_NOTE := $(if $(filter auto,$(WITH_NCCL)),$(if $(WITH_NCCL_NOW),,no \
	CUDA toolkit with NCCL in $(CUDA): building without libhvd-nccl.so))
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $@ || { \
		rm -f $(LIB)/hvd/*.so $(BUILD)/tests/*/libhvd-mpi.so && \
		echo '$(subst ','\'',$(FLAGS_NOW))' >$@; \
		$(if $(NO_MPI_NOTE),echo '$(NO_MPI_NOTE)';) \
		$(if $(NO_NCCL_NOTE),echo '$(NO_NCCL_NOTE)';) }
.PHONY: FORCE
FORCE:

# A small operation is all calls of small functions.
$(BUILD)/obj/runtime/%.o: OPT := $(OPT:-O2=-O3)

# No fused multiply-add: every tier gives the same bits.
$(BUILD)/obj/runtime/plane/reduce_%.o: FILE_CFLAGS = -ffp-contract=off
$(BUILD)/obj/runtime/core/adasum.o: FILE_CFLAGS = -ffp-contract=off
$(BUILD)/obj/runtime/plane/reduce_avx2.o: FILE_CFLAGS = -ffp-contract=off \
	-mavx2 -mf16c
$(BUILD)/obj/runtime/plane/reduce_avx512.o: FILE_CFLAGS = -ffp-contract=off \
	-mavx2 -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl

# Holds the script.
$(BUILD)/obj/lib/transport/bootstrap.o: lib/transport/bootstrap.sh

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(FILE_CFLAGS) -MMD -MP -c -o $@ $<

define archive
$(BUILD)/obj/lib$(1).a: $$(call obj,$$($(2)_SRC))
	@rm -f $$@
	$(AR) rcs $$@ $$^
endef
$(eval $(call archive,base,BASE))
$(eval $(call archive,hosts,HOSTS))
$(eval $(call archive,protocol,PROTOCOL))
$(eval $(call archive,rendezvous,RENDEZVOUS))
$(eval $(call archive,transport,TRANSPORT))
$(eval $(call archive,agent,AGENT))
$(eval $(call archive,job,JOB))
$(eval $(call archive,runtime,RUNTIME))
$(eval $(call archive,hvdrun,HVDRUN))
$(eval $(call archive,hvd-bench,HVD_BENCH))
ar = $(patsubst %,$(BUILD)/obj/lib%.a,$(1))

HVDRUN_PARTS := $(call ar,hvdrun job transport rendezvous agent hosts \
	protocol base)
link_hvdrun = $(CC) $(ALL_LDFLAGS) -o $@ -Wl,--start-group $(filter %.a,$^) \
	-Wl,--end-group $(UV_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(SODIUM_A) \
	-ldl -lm

# Static programs.  The linker warns about look-ups of users, which libuv has
# and the agent does not use; of hvdrun see linkage_static.c.
NO_WARNINGS := $(shell ld --no-warnings --version >/dev/null 2>&1 && \
	echo -Wl,--no-warnings)
check_static = @! nm $@ | grep ' U ' || { rm $@; exit 1; } # silenced, too
LINKAGE := $(call obj,lib/base/linkage_static.c)
define link_static_hvdrun
	$(CC) $(ALL_LDFLAGS) $(NO_WARNINGS) -static -o $@ \
	$(LINKAGE) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
	-l:libuv_a.a -l:libjansson.a -l:libyaml.a $(SODIUM_A) -ldl -lm
	$(check_static)
endef
# Another STATIC links again.
$(BIN)/hvdrun: $(HVDRUN_PARTS) $(LINKAGE) $(BUILD)/static
	@mkdir -p $(@D)
	$(if $(filter 1,$(STATIC)),$(link_static_hvdrun),$(link_hvdrun))
$(BUILD)/static: FORCE
	@mkdir -p $(@D)
	@echo '$(filter 1,$(STATIC))' | cmp -s - $@ || \
		echo '$(filter 1,$(STATIC))' >$@

# Has its own copy of what it needs, and exports one function.
$(LIB)/hvd/transport-ssh2.so: $(call obj,$(SSH2_SRC)) \
		$(call ar,transport base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete -o $@ $^ \
		$(UV_LIBS) $(SSH2_LIBS) -Wl,--exclude-libs,libsodium.a \
		$(SODIUM_A)

# The same; MPI cannot be unloaded.
$(BUILD)/obj/runtime/plugins/mpi/%.o: FILE_CFLAGS = \
	$(call mpi_cflags,$(MPI_SHOWN))
link_mpi = $(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete \
	-Wl,--version-script=runtime/plugins/mpi/libhvd-mpi.map
$(LIB)/hvd/libhvd-mpi.so: $(call obj,$(MPI_PLUGIN_SRC) $(MPI_PLUGIN_OWN)) \
		$(call ar,base) runtime/plugins/mpi/libhvd-mpi.map
	@mkdir -p $(@D)
	$(link_mpi) -o $@ $(filter %.o %.a,$^) $(call mpi_libs,$(MPI_SHOWN))

# The same; it opens CUDA and NCCL itself when it runs.  The path is where it
# finds NCCL if the system's linker does not.
$(BUILD)/obj/runtime/plugins/nccl/%.o: FILE_CFLAGS = $(NCCL_CFLAGS) \
	-DHVD__CUDA_TEXT='"$(CUDA_TEXT)"'
$(BUILD)/obj/runtime/plugins/nccl/kernels.fatbin: \
		$(addprefix runtime/plugins/nccl/,kernels.cu kernels.h \
		kernels_body.h) $(BUILD)/flags
	@mkdir -p $(@D)
	$(NVCC) -fatbin -Xfatbin -compress-all -std=c++17 -O3 -fmad=false -I. \
		$(GENCODE) -o $@ $<
$(BUILD)/obj/runtime/plugins/nccl/kernels_image.o: \
		$(BUILD)/obj/runtime/plugins/nccl/kernels.fatbin
$(BUILD)/obj/runtime/plugins/nccl/kernels_image.o: \
		runtime/plugins/nccl/kernels_image.S $(BUILD)/flags
	$(CC) -DHVD__FATBIN='"$(@D)/kernels.fatbin"' -c -o $@ $<
NCCL_IMAGE := $(BUILD)/obj/runtime/plugins/nccl/kernels_image.o
$(LIB)/hvd/libhvd-nccl.so: $(call obj,$(NCCL_PLUGIN_SRC) $(NCCL_PLUGIN_OWN)) \
		$(NCCL_IMAGE) $(call ar,base) runtime/plugins/nccl/libhvd-nccl.map
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-z,defs -Wl,-z,nodelete \
		-Wl,--version-script=runtime/plugins/nccl/libhvd-nccl.map \
		-Wl,-rpath,$(NCCL_LIBDIR) -o $@ $(filter %.o %.a,$^) -ldl

# Static, so that it runs on any host of the same CPU type.
$(BIN)/hvd-agent: $(call obj,$(HVD_AGENT_SRC)) \
		$(call ar,agent protocol base)
	@mkdir -p $(@D)
ifeq ($(AGENT_LINK),-static)
	$(CC) $(ALL_LDFLAGS) $(NO_WARNINGS) -static -o $@ $^ \
		-l:libuv_a.a -ljansson -ldl $(SODIUM_A)
	$(check_static)
else
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) $(SODIUM_A)
endif

$(SO): $(call obj,$(RUNTIME_SRC)) $(call ar,protocol base) runtime/libhvd.map
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,libhvd.so.$(SOVERSION) \
		-Wl,--version-script=runtime/libhvd.map -Wl,-z,defs \
		-Wl,-z,nodelete -o $@ \
		$(filter %.o %.a,$^) \
		-Wl,--exclude-libs,libsodium.a $(SODIUM_A)

$(LIB)/libhvd.so: $(SO)
	ln -sf $(notdir $(SO)) $@

$(BIN)/hvd-bench: $(call obj,$(HVD_BENCH_SRC)) $(LIB)/libhvd.so \
		$(call ar,base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ \
		$(filter %.o %.a,$^) -L$(LIB) -lhvd -ldl -lm

# Examples are compiled as a user would: from the installed headers only.
$(BUILD)/include/hvd.h: runtime/hvd.h
$(BUILD)/include/hvd_status.h: lib/base/hvd_status.h
$(BUILD)/include/%.h:
	@mkdir -p $(@D)
	cp $< $@
$(BUILD)/examples/data/%: examples/data/%
	@mkdir -p $(@D)
	cp $< $@
$(BUILD)/examples/%: examples/%.c examples/common.c examples/common.h \
		$(BUILD)/include/hvd.h $(BUILD)/include/hvd_status.h \
		$(LIB)/libhvd.so $(BUILD)/flags | $(EXAMPLE_DATA)
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE $(OPT) -g $(WARN) $(SANFLAGS) $(CFLAGS) \
		-I$(BUILD)/include -o $@ $< examples/common.c \
		$(SANFLAGS) -L$(LIB) -Wl,-rpath,'$$ORIGIN/../lib' -lhvd -lm

# The same on a GPU; the driver compiles the kernels for the one it finds.
$(BUILD)/obj/examples/common.o: FILE_CFLAGS = -Iexamples -I$(BUILD)/include
$(BUILD)/obj/examples/common.o: $(BUILD)/include/hvd.h \
		$(BUILD)/include/hvd_status.h
EXAMPLE_ARCH := compute_$(firstword $(GPU_ARCHS))
$(BUILD)/examples/%_cuda: examples/%_cuda.cu $(BUILD)/obj/examples/common.o \
		examples/common.h $(LIB)/libhvd.so $(BUILD)/flags | $(EXAMPLE_DATA)
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 $(OPT) -g -Werror all-warnings \
		-Xcompiler -Wall,-Wextra \
		-gencode arch=$(EXAMPLE_ARCH)$(comma)code=$(EXAMPLE_ARCH) \
		-I$(BUILD)/include -c -o $(BUILD)/obj/$(<:.cu=.o) $<
	$(CXX) -static-libstdc++ -static-libgcc -o $@ $(BUILD)/obj/$(<:.cu=.o) \
		$(filter %.o,$^) -L$(LIB) -Wl,-rpath,'$$ORIGIN/../lib' -lhvd \
		-L$(CUDA)/lib64 -lcudart_static -ldl -lrt -lpthread -lm

# ---- Tests ------------------------------------------------------------

# Shared by tests: a world of forked ranks, and what they compute.
WORLD_SRC := $(addprefix tests/unit/, \
	agent_util.c fake_agent.c forked.c hier_world.c remote_util.c \
	shm_group.c shm_member.c ssh_client.c ssh_server.c tcp_group.c \
	thread_plane.c values.c worker_client.c world.c world_hosts.c)
$(eval $(call archive,world,WORLD))

$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o \
		$(call ar,world hvd-bench hvdrun job transport rendezvous agent hosts \
			runtime protocol base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group \
		$(filter %.a,$^) -Wl,--end-group \
		$(UV_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(CHECK_LIBS) -lm \
		$(SODIUM_A)

$(BUILD)/tests/test_job $(BUILD)/tests/test_job_hosts: \
		$(call obj,tests/unit/job_util.c)

# They drive the real one.
$(BUILD)/tests/test_query $(BUILD)/tests/test_agent \
		$(BUILD)/tests/test_agent_launch \
		$(BUILD)/tests/test_agent_stall \
		$(BUILD)/tests/test_agent_route: | $(BIN)/hvd-agent

# It looks at the programs and libraries beside it.
$(BUILD)/tests/test_check_build: | $(BIN)/hvd-agent $(LIB)/libhvd.so
STAND_INS := $(addprefix $(BUILD)/tests/,stand_in.so beside/beside.so)
$(STAND_INS): $(call obj,tests/unit/stand_in.c)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-rpath,'$$ORIGIN/beside' -o $@ $<
$(BUILD)/tests/test_check_build $(BUILD)/tests/test_probe: | $(STAND_INS)

$(SSH2_TESTS:%=$(BUILD)/tests/test_%): | $(PLUGINS)

# With parts of the plug-in.
$(NCCL_TESTS:%=$(BUILD)/tests/test_%): $(NCCL_IMAGE) $(call obj, \
	$(addprefix runtime/plugins/nccl/,cuda.c fuse.c nccl.c))
$(NCCL_TESTS:%=$(BUILD)/obj/tests/unit/test_%.o): FILE_CFLAGS = $(NCCL_CFLAGS)
# With all of it, over the doubles.
NCCL_WORLD := tests/unit/nccl_world.c $(addprefix tests/system/prog/, \
	nccl_cuda.c nccl_values.c)
$(call obj,$(NCCL_WORLD) $(NCCL_PLANE_TESTS:%=tests/unit/test_%.c)): \
	FILE_CFLAGS = $(NCCL_CFLAGS)
$(NCCL_PLANE_TESTS:%=$(BUILD)/tests/test_%): $(call obj,$(NCCL_WORLD)) \
	| $(PLUGINS) nccl-doubles

# What the system tests run as ranks, and the tools that drive them.
$(BUILD)/tests/prog/rdv: $(call obj,runtime/core/agent_client.c)
$(BUILD)/tests/prog/prop: $(call obj,$(addprefix tests/system/prog/, \
	prop_job.c prop_script.c prop_values.c))
$(BUILD)/tests/prog/mpi_plane: $(call obj,tests/unit/values.c \
	$(addprefix tests/system/prog/,mpi_plane_ops.c mpi_plane_world.c)) \
		$(call ar,runtime)
$(BUILD)/tests/prog/%: $(BUILD)/obj/tests/system/prog/%.o \
		$(LIB)/libhvd.so $(call ar,protocol base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ \
		-Wl,--start-group $(filter %.o %.a,$^) -Wl,--end-group \
		-L$(LIB) -lhvd $(JANSSON_LIBS) -lm

.PHONY: system-progs
system-progs: $(SYSTEM_PROGS:%=$(BUILD)/tests/prog/%)

# What STATIC=1 makes; a sanitizer has no static form.
ifeq ($(AGENT_LINK),-static)
system-progs: $(BUILD)/tests/static/hvdrun
$(BUILD)/tests/static/hvdrun: $(HVDRUN_PARTS) $(LINKAGE)
	@mkdir -p $(@D)
	$(link_static_hvdrun)
system-progs: $(BUILD)/tests/static/actor
$(BUILD)/tests/static/actor: $(call obj,tests/system/prog/actor.c) \
		$(call ar,base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -static -o $@ $^
endif

# The plug-in for each MPI, whichever the build's is.
MPI_TESTS := $(if $(MPI_SHOWN),$(foreach mpi,openmpi mpich,$(if \
	$(shell command -v mpicc.$(mpi)),$(BUILD)/tests/$(mpi)/libhvd-mpi.so)))
$(BUILD)/tests/%/libhvd-mpi.so: $(MPI_PLUGIN_SRC) \
		$(call obj,$(MPI_PLUGIN_OWN)) $(call ar,base) \
		runtime/plugins/mpi/libhvd-mpi.map $(BUILD)/flags \
		runtime/plugins/mpi/mpi_impl.h $(wildcard runtime/plane/*.h) \
		runtime/plugins/plugin.h
	@mkdir -p $(@D)
	$(link_mpi) $(ALL_CFLAGS) -O3 \
		$(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ \
		$(filter %.c %.o %.a,$^) $(call mpi_libs,$(shell mpicc.$* -show))
$(BUILD)/tests/prog/mpi_plane: | $(MPI_TESTS)

# A user's program, by the compiler of each MPI.
MPI_USERS := $(MPI_TESTS:%/libhvd-mpi.so=%/mpi_user)
$(BUILD)/tests/%/mpi_user: tests/system/prog/mpi_user.c $(LIB)/libhvd.so \
		$(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ $< \
		$(ALL_LDFLAGS) $(LIB)/libhvd.so -Wl,-rpath,$(abspath $(LIB)) \
		$(call mpi_libs,$(shell mpicc.$* -show))
# Calls of MPI and for memory that fail; for LD_PRELOAD.
MPI_FAILS := $(MPI_TESTS:%/libhvd-mpi.so=%/mpi_fail.so)
$(BUILD)/tests/%/mpi_fail.so: tests/system/prog/mpi_fail.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -I. -O2 -g $(WARN) -fPIC -shared \
		$(call mpi_cflags,$(shell mpicc.$* -show)) -o $@ $< \
		$(call mpi_libs,$(shell mpicc.$* -show))
system-progs: $(MPI_USERS) $(MPI_FAILS)

# Doubles of the CUDA driver and of NCCL over host memory, for tests without a
# GPU, and one of an NCCL that lacks the newer functions.
NCCL_DOUBLES := $(addprefix $(BUILD)/tests/nccl/, \
	libcuda.so.1 libnccl.so.2 libnccl-old.so.2)
.PHONY: nccl-doubles
nccl-doubles: $(NCCL_DOUBLES)
$(BUILD)/obj/tests/nccl/%.o: FILE_CFLAGS = $(NCCL_CFLAGS) -fvisibility=default
link_double = $(CC) $(ALL_LDFLAGS) -shared -Wl,-z,nodelete
$(BUILD)/tests/nccl/libcuda.so.1: $(call obj,$(addprefix tests/nccl/, \
		fake_copy.c fake_cuda.c fake_kernel.c fake_memory.c fake_stream.c))
	@mkdir -p $(@D)
	$(link_double) -Wl,-soname,$(@F) -o $@ $^
$(BUILD)/tests/nccl/lib%.so.2: $(call obj,$(addprefix tests/nccl/, \
		fake_nccl.c fake_nccl_calls.c fake_nccl_reduce.c fake_nccl_shared.c)) \
		$(BUILD)/tests/nccl/libcuda.so.1 tests/nccl/%.map
	$(link_double) -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$$ORIGIN' \
		-Wl,--version-script=$(filter %.map,$^) -o $@ \
		$(filter-out %.map,$^) -lm
# What tests/gpu/run runs, on a GPU or on the doubles.
GPU_PROGS := $(if $(WITH_NCCL_NOW),$(addprefix $(BUILD)/tests/gpu/,checks kernels))
$(BUILD)/obj/tests/gpu/%.o: FILE_CFLAGS = $(NCCL_CFLAGS)
$(BUILD)/tests/gpu/kernels: $(NCCL_IMAGE) $(call obj,$(addprefix \
		runtime/plugins/nccl/,fuse.c nccl.c) cmd/hvd-bench/resnet50.c) \
		$(call ar,runtime)
$(BUILD)/tests/gpu/%: $(BUILD)/obj/tests/gpu/%.o $(call obj,tests/gpu/gpu.c \
		runtime/plugins/nccl/cuda.c) $(LIB)/libhvd.so $(call ar,base) \
		| $(NCCL_DOUBLES)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ \
		-Wl,--start-group $(filter %.o %.a,$^) -Wl,--end-group \
		-L$(LIB) -lhvd -ldl -lm
system-progs: $(GPU_PROGS)
NCCL_PROG := $(addprefix tests/system/prog/, nccl_cases.c nccl_cuda.c \
	nccl_moves.c nccl_rank.c nccl_values.c)
$(call obj,$(addprefix tests/system/prog/,nccl.c nccl_double.c) \
	$(NCCL_PROG)): FILE_CFLAGS = $(NCCL_CFLAGS)
$(BUILD)/tests/prog/nccl: $(call obj,$(NCCL_PROG)) | $(NCCL_DOUBLES)
$(BUILD)/tests/prog/nccl_double: $(BUILD)/obj/tests/system/prog/nccl_double.o \
		$(filter-out %-old.so.2,$(NCCL_DOUBLES))
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../nccl' -o $@ $^

# A fuzzer replays files; with SAN=fuzzer it is libFuzzer's.
FUZZ_MAIN := $(if $(filter fuzzer,$(SAN)),-fsanitize=fuzzer,\
	$(call obj,tests/fuzz/replay.c))
$(BUILD)/tests/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o \
		$(filter %.o,$(FUZZ_MAIN)) \
		$(call ar,hvdrun job transport rendezvous agent hosts \
			runtime protocol base)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $< $(FUZZ_MAIN) -Wl,--start-group \
		$(filter %.a,$^) -Wl,--end-group \
		$(UV_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(SODIUM_A) -lm

.PHONY: fuzzers
fuzzers: $(FUZZERS:%=$(BUILD)/tests/fuzz_%)

# What tests/run needs, built before it counts anything.
.PHONY: tests
tests: all system-progs $(UNIT_TESTS:%=$(BUILD)/tests/test_%) \
	fuzzers

# The stages of a full check, and what each covers, are in tests/run.
JOBS = $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
RUN_TESTS = MAKE='$(MAKE) -j$(shell nproc)' BUILD='$(BUILD)' \
	UNIT_TESTS='$(UNIT_TESTS)' FUZZERS='$(FUZZERS)' tests/run

.PHONY: quickstart
quickstart:
	sh .ci/packages build
	@echo 'building ...'
	@+$(MAKE) -s $(JOBS) all
	$(BIN)/hvdrun -np 2 $(BUILD)/examples/train_digits

.PHONY: check
check:
	sh .ci/packages test
	+@$(RUN_TESTS) all

# What is quick, needs no other build and no package that is not there.
.PHONY: check-fast
check-fast:
	+@$(RUN_TESTS) build unit fuzz

# What tests/bench measures beside: whichever peers are installed, and a probe
# of the machine.  Only `make bench` builds them.
BENCH_PEERS := $(BUILD)/bench/probe $(foreach mpi,openmpi mpich,\
	$(if $(shell command -v mpicc.$(mpi)),$(BUILD)/bench/mpi_peer.$(mpi))) \
	$(if $(wildcard /usr/include/gloo/allreduce.h),$(BUILD)/bench/gloo_peer)
PEER_SRC := tests/bench/peer.c cmd/hvd-bench/resnet50.c
PEER_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -O3 -g $(WARN)
$(BUILD)/bench/probe: tests/bench/probe.c
	@mkdir -p $(@D)
	$(CC) $(PEER_CFLAGS) -march=native -o $@ $<
$(BUILD)/bench/mpi_peer.%: tests/bench/mpi_peer.c $(PEER_SRC) \
		tests/bench/peer.h
	@mkdir -p $(@D)
	mpicc.$* $(PEER_CFLAGS) -o $@ $(filter %.c,$^)
$(BUILD)/bench/gloo_peer: tests/bench/gloo_peer.cc $(PEER_SRC) \
		tests/bench/peer.h
	@mkdir -p $(@D)
	for f in $(PEER_SRC); do $(CC) $(PEER_CFLAGS) -c -o \
		$(@D)/$$(basename $$f .c).o $$f || exit 1; done
	$(CXX) -std=c++17 -I. -O3 -g -Wall -Wextra -o $@ $< \
		$(patsubst %.c,$(@D)/%.o,$(notdir $(PEER_SRC))) -lgloo -pthread

# On a machine with a GPU, or for one; see tests/gpu/run.
.PHONY: gpu-check gpu-pack
gpu-check:
	BUILD='$(BUILD)' tests/gpu/run
gpu-pack: all system-progs
	rm -rf '$(BUILD)/gpu'
	BUILD='$(BUILD)' tests/gpu/run pack '$(BUILD)/gpu'

# BENCH=--quick for fewer and shorter jobs of the speed table.
.PHONY: bench bench-speed
bench-speed: all $(BENCH_PEERS)
	BUILD='$(BUILD)' tests/bench/speed $(BENCH)
bench: bench-speed $(BUILD)/tests/prog/rdv
	BUILD='$(BUILD)' tests/bench/run
	BUILD='$(BUILD)' tests/bench/launch
	BUILD='$(BUILD)' tests/bench/cluster

.PHONY: asan ubsan tsan valgrind lint
asan ubsan tsan valgrind lint:
	+@$(RUN_TESTS) $@

# Inputs that reach new code collect in $(BUILD)/fuzz/corpus.
FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz:
	+$(MAKE) BUILD=$(BUILD)/fuzz CC=clang SAN=fuzzer fuzzers
	for name in $(FUZZERS); do \
		mkdir -p $(BUILD)/fuzz/corpus/$$name && \
		$(BUILD)/fuzz/tests/fuzz_$$name -close_fd_mask=1 \
			-max_total_time=$(FUZZ_SECONDS) -verbosity=0 \
			-artifact_prefix=$(BUILD)/fuzz/$$name- \
			$(BUILD)/fuzz/corpus/$$name tests/fuzz/corpus/$$name || \
		exit 1; done

C_FILES = $(sort $(wildcard cmd/*/*.[ch] lib/*/*.[ch] runtime/*.h \
	runtime/*/*.[ch] runtime/plugins/*/*.[ch] runtime/plugins/*/*.cu \
	examples/*.[ch] examples/*.cu \
	tests/*/*.[ch] tests/*/*/*.[ch]))
CLANG_FORMAT ?= $(shell command -v clang-format-14 || echo clang-format)

.PHONY: format format-check
format:
	$(CLANG_FORMAT) -i $(C_FILES)
format-check:
	$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

# For editors and clang-tidy: the compiler calls that make would run.
.PHONY: compile_commands.json
compile_commands.json:
	@$(MAKE) --no-print-directory --always-make --dry-run all tests | \
	awk -v dir='$(CURDIR)' '/ -c -o / { \
		file = $$NF; gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); \
		printf "%s{\"directory\": \"%s\", \"file\": \"%s\", " \
			"\"command\": \"%s\"}", n++ ? ",\n" : "[\n", dir, file, $$0 \
	} END { print "\n]" }' >$@

# ---- Install ------------------------------------------------------------

BINDIR = $(DESTDIR)$(PREFIX)/bin
LIBEXECDIR = $(DESTDIR)$(PREFIX)/libexec/hvd
LIBDIR = $(DESTDIR)$(PREFIX)/lib
INCLUDEDIR = $(DESTDIR)$(PREFIX)/include
MANDIR = $(DESTDIR)$(PREFIX)/share/man
SHAREDIR = $(DESTDIR)$(PREFIX)/share/hvd
DOCDIR = $(DESTDIR)$(PREFIX)/share/doc/hvd
INSTALL ?= install

# Whatever WITH_X they were built with.
BUILT_PLUGINS = $(wildcard $(LIB)/hvd/*.so)

.PHONY: install install-files
install: all
	@$(MAKE) --no-print-directory install-files
install-files:
	$(INSTALL) -d $(BINDIR) $(LIBEXECDIR) $(LIBDIR)/pkgconfig \
		$(INCLUDEDIR) $(SHAREDIR)/examples/data $(SHAREDIR)/hostfiles \
		$(DOCDIR)
	$(INSTALL) $(BIN)/hvdrun $(BIN)/hvd-bench $(BINDIR)
	$(INSTALL) $(BIN)/hvd-agent $(LIBEXECDIR)
	$(INSTALL) -m 644 $(SO) $(LIBDIR)
	ln -sf $(notdir $(SO)) $(LIBDIR)/libhvd.so
	$(if $(BUILT_PLUGINS),$(INSTALL) -d $(LIBDIR)/hvd && \
		$(INSTALL) -m 644 $(BUILT_PLUGINS) $(LIBDIR)/hvd)
	$(INSTALL) -m 644 runtime/hvd.h lib/base/hvd_status.h $(INCLUDEDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
		runtime/hvd.pc.in >$(LIBDIR)/pkgconfig/hvd.pc
	$(INSTALL) -m 644 examples/*.[ch] examples/*.cu $(SHAREDIR)/examples
	$(INSTALL) -m 644 examples/data/* $(SHAREDIR)/examples/data
	$(INSTALL) -m 644 hostfiles/* $(SHAREDIR)/hostfiles
	$(INSTALL) -m 644 LICENSE $(DOCDIR)
	sh man/install $(MANDIR) $(INSTALL)

# Removes what an install of this version would put there.
.PHONY: uninstall
uninstall:
	@rm -rf $(BUILD)/uninstall
	@$(MAKE) --no-print-directory install-files \
		DESTDIR='$(abspath $(BUILD)/uninstall)' >/dev/null
	cd $(BUILD)/uninstall && find . ! -type d | while read -r f; do \
		rm -f "$(abspath $(DESTDIR))/$$f"; done
	cd $(BUILD)/uninstall && find . -depth -type d -path '*/hvd*' | \
		while read -r d; do rmdir "$(abspath $(DESTDIR))/$$d" || :; done
	@rm -rf $(BUILD)/uninstall

.PHONY: help
help:
	@sed -n 's/^#   make/make/p' Makefile
	@printf '%s\n' \
	'make check-fast   unit tests and fuzz corpora of this build' \
	'make asan         unit and system tests under ASan and UBSan' \
	'make ubsan        unit tests under UBSan alone' \
	'make tsan         unit and libhvd system tests under ThreadSanitizer' \
	'make valgrind     unit tests under memcheck' \
	'make fuzz         fuzz every parser for a minute each' \
	'make lint         layers, symbols, man pages, format, analysers' \
	'make format       clang-format 14, in place' \
	'make bench        the tables of README.md' \
	'make bench-speed  the speed table alone; BENCH=--quick is shorter' \
	'make gpu-check    what needs a GPU; gpu-pack: a folder to take to one' \
	'make uninstall    DESTDIR= PREFIX= as for install' \
	'make compile_commands.json, clean'

.PHONY: clean
clean:
	rm -rf $(BUILD)

# Objects of tests are kept, so that relinking does not compile.
.SECONDARY:

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
