dpkg --install /packages/libggml-rocket_*.deb /packages/npu-probe_*.deb 2>&1 | grep -Ev 'database|triggers'
npu-probe doctor | grep -A1 'ggml backend'
export GGML_ROCKET_DEVICE=model GGML_ROCKET_MEM=1G
llama-completion --list-devices 2>/dev/null
GGML_ROCKET_STATS=1 GGML_ROCKET_MIN_M=2 llama-completion -m /files/tiny.gguf --temp 0 -n 4 -no-cnv -p 'It was a dark and stormy night; the rain fell in torrents.' 2>&1 </dev/null | grep -aE 'matmuls computed|graphs failed|weight tensors'
: the same with libwhisper
GGML_ROCKET_STATS=1 GGML_ROCKET_MIN_M=32 /files/whisper_logits /files/whisper.bin 2 /root/logits 2>&1 | grep -aE 'matmuls computed in fp16|graphs failed'
: GGML_BACKEND_PATH replaces the library of the package
cp /usr/lib/*-linux-gnu/ggml/libggml-rocket.so /root
GGML_BACKEND_PATH=/root/libggml-rocket.so llama-completion --list-devices 2>/dev/null
rm /root/libggml-rocket.so
: without an NPU the program runs on the CPU
unset GGML_ROCKET_DEVICE
llama-completion --list-devices 2>/dev/null
dpkg --purge npu-probe libggml-rocket 2>&1 | grep -Ev 'database|triggers'
GGML_ROCKET_DEVICE=model llama-completion --list-devices 2>/dev/null
