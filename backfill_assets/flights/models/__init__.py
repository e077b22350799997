"""How late a flight will be, and how unusual it is: two models, and the pipeline through them."""
