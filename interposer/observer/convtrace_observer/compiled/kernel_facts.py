"""Facts of kernels that the program compiles, each with one text for each way in which the kernel was compiled."""

_MAX_KERNELS, _MAX_TEXTS = 1000, 8


class KernelFacts:
    def __init__(self, observer, prefix, in_order):
        """`in_order`: puts the texts of a kernel in the order in which they are told."""
        self._observer, self._prefix, self._in_order = observer, prefix, in_order
        self._known = {}  # kernel -> its texts

    def tell(self, kernel, text):
        """Tells the kernel's fact anew if the text is new."""
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
