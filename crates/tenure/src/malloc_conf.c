/* How jemalloc keeps freed memory: two arenas for all threads, returned to the system within a moment by background
   threads. Otherwise a daemon that idles after a load would keep the memory of that load. Under load it takes less than
   half of the memory, and is as fast. Linked into the binaries by their build scripts; MALLOC_CONF overrides it. */
const char *malloc_conf = "background_thread:true,narenas:2,dirty_decay_ms:300,muzzy_decay_ms:0";
/* The same if jemalloc's symbols have a prefix. */
const char *_rjem_malloc_conf = "background_thread:true,narenas:2,dirty_decay_ms:300,muzzy_decay_ms:0";
