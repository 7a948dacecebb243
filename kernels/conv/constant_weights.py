"""Copies the weights into constant memory before the launch that the header declares."""


def prepare(kernels, layer, images, launch):
    weights = kernels.symbol("weights")

    def call(x, w, y):
        weights.copy(w)
        launch(x, w, y)

    return call
