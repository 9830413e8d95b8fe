/// Stands for a profiler's injection library (Nsight Systems, compute-sanitizer): takes CUPTI
/// before anybody else and says that it was here.

#include <cupti.h>
#include <stdio.h>

static void ignore(void* data, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                   const void* params) {
  (void)data, (void)domain, (void)id, (void)params;
}

int InitializeInjection(void);
int InitializeInjection(void) {
  static CUpti_SubscriberHandle subscriber;
  if (cuptiSubscribe(&subscriber, ignore, NULL) == CUPTI_SUCCESS) puts("other tool");
  return 1;
}
