dpkg --install /packages/*.deb 2>&1 | grep -Ev 'database|triggers'
npu-probe doctor | grep 'ggml backend'
npu-probe --device model | grep -v ^kernel
npu-probe run -- head --bytes=0 /dev/accel/accel0
rocket-conformance --device model --except bug- version submit
ls -U /usr/include/rocket* /usr/lib/npu-probe/* /usr/lib/*-linux-gnu/librocket* /usr/lib/*/pkgconfig/rocket*
ls /usr/share/man/man1/npu-probe.1.gz /usr/share/man/man1/npu-probe-calibrate.1.gz
dpkg --purge npu-probe libggml-rocket rocket-conformance librocket-npu-dev librocket-npu0 2>&1 | grep -Ev 'database|triggers'
find /etc /opt /usr /var -name '*rocket*' -o -name '*npu-probe*'
