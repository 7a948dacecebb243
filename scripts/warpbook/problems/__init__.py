"""What is computed: networks, their layers and weights, and the images."""
