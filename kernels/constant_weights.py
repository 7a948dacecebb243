"""Copies the weights into constant memory before the launch that the header declares."""


def prepare(kernels, layer, images, launch):
    symbol = kernels.get_global("weights")

    def call(x, w, y):
        symbol.copy_from_device_async(w.data, w.nbytes)
        launch(x, w, y)

    return call
