// The library that preload.exec compares with: what any LD_PRELOAD costs.
typedef int convtrace_not_empty;
