"""Facts of the kernels that the program compiles. A fact has one text for each variant that was compiled of its kernel."""

_MAX_KERNELS, _MAX_TEXTS = 1000, 8


class KernelFacts:
    def __init__(self, observer, prefix, in_order):
        """@param in_order  sorts the texts of a kernel"""
        self._observer, self._prefix, self._in_order = observer, prefix, in_order
        self._known = {}  # kernel -> its texts

    def tell(self, kernel, text):
        """Records the kernel's fact again if the text is new."""
        if len(self._known) >= _MAX_KERNELS and kernel not in self._known:
            return
        texts = self._known.setdefault(kernel, [])
        if text in texts or len(texts) == _MAX_TEXTS:
            return
        texts.append(text)
        thread = self._observer.threads.state
        if self._observer.begin(thread):
            thread.batch.fact(self._prefix + kernel, " | ".join(self._in_order(texts)))
            self._observer.submit(thread)
